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

header='gpumux-sched-trace 2 max_apps=4 budget=1000 levels=4 allotment_ns=8000000000 slice_ns=4000000000 patience_ns=60000000000 retry_ns=1000000000'
trace() {
    printf '%s\n' "$header" "$@" >"$dir/t"
}

trace '1 join 0' '2 size 0 500' '3 want 0' '4 opened 0' '9 idle 0'
"$sim" --replay "$dir/t" >"$dir/out" || fail "a good trace is refused"
: >"$dir/t" && expect "an empty file" 1 "the file is empty"
printf 'hello\n' >"$dir/t" && expect "another file" 1 "not a trace of a scheduler"
head -c 4000 "$sim" >"$dir/t" && expect "a program" 1 ""
printf '%s' "$header" >"$dir/t" && expect "a header cut off" 1 "cut off"
trace '1 join 0' '2 join 0' && expect "joined twice" 3 "not what app 0 can do now"
trace '1 want 3' && expect "an app that is not there" 2 "there is no app 3"
trace '1 join 4' && expect "an app beyond all" 2 "the app is 4"
trace '5 join 0' '4 want 0' && expect "time goes back" 3 "the time goes back"
trace '1 join 0' '2 opened 0' && expect "opened, not chosen" 3 "not what app 0 can do now"
trace '1 join 0' '2 set 0 class=fast weight=1000 share=1000 paused=0' && expect "a class" 3 "an unknown class: fast"
trace '1 join 0' '2 set 1 class=auto weight=1000 share=1000 paused=0' && expect "settings of nobody" 3 "there is no app 1"
trace '1 join 0' '99999999999999999999 want 0' && expect "a time beyond all" 3 "the time is 99999999999999999999"
trace '1 join 0' '' '2 want 0' && expect "an empty line" 3 "the time is missing"
trace '1 join 0' && printf '2 size 0 50' >>"$dir/t" && expect "a line cut off" 3 "cut off"
trace '1 join 0' && printf '2 want\0 0\n' >>"$dir/t" && expect "a zero byte" 3 "a zero byte"
{ printf '%s\n' "$header" && head -c 2000000 /dev/zero | tr '\0' '7' && echo; } >"$dir/t" && expect "a line without end" 2 "longer than any"

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
