# Record and replay: the same decisions come of the same trace, and a corrupt one is one line.
#   sh test_replay.sh SIM_SCHED
set -u
sim=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "sim_replay: $*" >&2
    exit 1
}

# --- What was recorded decides the same again ---

for seed in 1 2 3 5 8 13 21 34 55 89 144; do
    "$sim" --record "$dir/t" $seed >"$dir/a" || fail "seed $seed is not recorded"
    "$sim" --replay "$dir/t" >"$dir/b" || fail "the trace of seed $seed is not replayed"
    grep '^decisions ' "$dir/a" >"$dir/a1"
    grep '^decisions ' "$dir/b" >"$dir/b1"
    [ -s "$dir/a1" ] && cmp -s "$dir/a1" "$dir/b1" || fail "seed $seed decides differently in the replay"
    grep -q 'all invariants hold' "$dir/b" || fail "no summary of seed $seed"
done

# --- A corrupt trace: exit 1, nothing on stdout, and on stderr just the line that is wrong ---

# expect NAME LINE WHY: $dir/t is refused at LINE for WHY, a part of the message
expect() {
    "$sim" --replay "$dir/t" >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status -eq 1 ] || fail "$1: exit $status"
    [ -s "$dir/out" ] && fail "$1: it prints $(head -n 1 "$dir/out")"
    [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "$1: not one line: $(cat "$dir/err")"
    case $(cat "$dir/err") in
    "$dir/t:$2: "*"$3"*) ;;
    *) fail "$1: expected line $2, $3: $(cat "$dir/err")" ;;
    esac
}

header='gpumux-trace 3
0 0 sched max_apps=4 budget=1000 levels=4 allotment_ns=8000000000 slice_ns=4000000000 patience_ns=60000000000 retry_ns=1000000000'
joined='1 0 join 0 user=0 level=0 charged_ns=0'
trace() {
    printf '%s\n' "$header" "$@" >"$dir/t"
}

trace "$joined" '2 0 size 0 bytes=500' '3 0 want 0' '2 0 opened 0' '9 0 idle 0 ago_ns=0'
"$sim" --replay "$dir/t" >"$dir/out" || fail "a good trace is refused"
printf '9 0 want' >>"$dir/t" # it is being written
"$sim" --replay "$dir/t" | cmp -s - "$dir/out" || fail "a line that is cut off changes the rest"
sed 's/\([0-9]*\) 0/\1 7/' "$dir/t" >"$dir/other"
"$sim" --replay "$dir/other" 7 | cmp -s - "$dir/out" || fail "another GPU decides something else"
cat "$dir/other" >"$dir/t" && expect "another GPU" 7 "nothing of this GPU's scheduler is there"
: >"$dir/t" && expect "an empty file" 0 "nothing of this GPU's scheduler"
printf 'hello\n' >"$dir/t" && expect "another file" 1 "does not begin with gpumux-trace"
head -c 4000 "$sim" >"$dir/t" && expect "a program" 1 ""
trace "$joined" "$joined" && expect "joined twice" 4 "not what app 0 can do now"
trace '1 0 want 3' && expect "an app that is not there" 3 "there is no app 3"
trace '1 0 want 4' && expect "an app beyond all" 3 "there is no app 4"
trace "$joined" '2 0 opened 0' && expect "opened, not chosen" 4 "not what app 0 can do now"
trace "$joined" '2 0 set 0 weight=1000 share=1000 paused=0 fast' && expect "a class" 4 "not a line of a trace"
trace "$joined" '2 0 set 0 weight=1 share=1000 paused=0 auto' && expect "a weight" 4 "settings that no app can have"
trace "$joined" '2 0 set 0 weight=1000 share=1000 paused=2 auto' && expect "a pause" 4 "nothing that a scheduler can be told"
trace "$joined" '2 0 set 1 weight=1000 share=1000 paused=0 auto' && expect "settings of nobody" 4 "there is no app 1"
trace "$joined" '' '2 0 want 0' && expect "an empty line" 4 "not a line of a trace"
trace "$joined" && printf '2 want\0 0\n' >>"$dir/t" && expect "a zero byte" 4 "a zero byte"
trace "$joined" '2 0 lost bytes=5' && expect "a loss" 4 "a part of it is lost"
trace '2 0 begin wall_ns=5 part' && expect "a part" 3 "it begins in the middle"
trace '2 0 sched max_apps=4 budget=1 levels=4 allotment_ns=8 slice_ns=4 patience_ns=60 retry_ns=1' && expect "settings, twice" 3 "twice"
{ printf 'gpumux-trace 3\n' && echo "$joined"; } >"$dir/t" && expect "no settings" 2 "settings of this GPU's scheduler are missing"
{ printf '%s\n' "$header" && head -c 2000000 /dev/zero | tr '\0' '7' && echo; } >"$dir/t" && expect "a line without end" 3 "longer than any"

"$sim" --replay "$dir/none" >"$dir/out" 2>"$dir/err" && fail "a file that is not there"
[ "$(cat "$dir/err")" = "$dir/none: No such file or directory" ] || fail "a file that is not there: $(cat "$dir/err")"
"$sim" --record "$dir/none/t" 1 >"$dir/out" 2>"$dir/err" && fail "a folder that is not there"
[ "$(wc -l <"$dir/err")" -eq 1 ] || fail "a folder that is not there: $(cat "$dir/err")"

# --- Traces with changed bytes: refused with one line, or replayed; never anything else ---

"$sim" --record "$dir/good" 7 >"$dir/out" || fail "seed 7 is not recorded"
awk -v dir="$dir" 'BEGIN { srand(1) }
    { lines[NR] = $0 }
    END {
        chars = "0123456789 =abz"
        for (file = 0; file < 150; file++) {
            changed = 1 + int(rand() * NR)
            for (i = 1; i <= NR; i++) {
                line = lines[i]
                if (i == changed) {
                    at = 1 + int(rand() * length(line))
                    line = substr(line, 1, at - 1) substr(chars, 1 + int(rand() * 15), 1) substr(line, at + 1)
                }
                print line >(dir "/c" file)
            }
            close(dir "/c" file)
        }
    }' "$dir/good"
refused=0
for file in "$dir"/c*; do
    "$sim" --replay "$file" >"$dir/out" 2>"$dir/err"
    case $? in
    0) ;;
    1)
        refused=$((refused + 1))
        [ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "a changed trace: $(cat "$dir/err")"
        ;;
    *) fail "a changed trace: $(cat "$dir/err")" ;;
    esac
done
[ $refused -gt 20 ] || fail "only $refused changed traces were refused"
echo "sim_replay: recorded traces decide the same, corrupt ones are refused ($refused of 150 changed ones)"
