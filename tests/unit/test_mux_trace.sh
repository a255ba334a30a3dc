#!/bin/sh
# mux-ctl trace over files: what is no trace is refused with one line; what cannot
# be written is said; and what is in a file's place is not touched.
set -u
ctl=$BUILD/daemon/mux-ctl
command -v python3 > /dev/null || { echo "skipped: no python3" && exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-trace.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
export GPUMUX_SOCKET="$dir/none"

fail() {
    echo "mux_trace: FAILED: $*"
    exit 1
}

# refuses CODE TEXT WORD...: mux-ctl trace WORD... ends with CODE after one line that has TEXT, and prints nothing.
refuses() {
    code=$1 text=$2
    shift 2
    "$ctl" trace "$@" > "$dir/out" 2> "$dir/err"
    got=$?
    [ "$got" = "$code" ] && [ "$(wc -l < "$dir/err")" = 1 ] && [ ! -s "$dir/out" ] && grep -qF -- "$text" "$dir/err" ||
        fail "trace $*: ended with $got: $(head -c 300 "$dir/out") $(cat "$dir/err")"
}

header='gpumux-trace 3'
cat > "$dir/good" << END
$header
1000000 3 begin wall_ns=1800000000000000000 whole
1000000 3 gpu <script>alert(1)</script> & "card"
1000000 3 app 1 pid=7 uid=0 </title><b onclick=x>" onmouseover=x y="' &amp;
1000000 3 state 1 paused
1000000 3 want 1
2000000 3 state 1 loading
3000000 3 state 1 running
3000000 3 switch 1 total_ns=1000000 drain_ns=400000 plan_ns=0 lower_ns=0 pinned_ns=0 copy_ns=600000 hash_ns=0 unmap_ns=0 map_ns=0 other_ns=0 out=0 in=5 clean=0 zero=0 down=0 up=0 waited_ns=2000000 <i>why
3100000 3 switch 1 total_ns=3000000 drain_ns=500000 plan_ns=2500000 lower_ns=0 pinned_ns=0 copy_ns=0 hash_ns=0 unmap_ns=0 map_ns=0 other_ns=0 out=0 in=0 clean=0 zero=0 down=0 up=0 waited_ns=0 longer than the trace
3500000 3 idle 1 ago_ns=250000
4000000 3 refused 1 bytes=9 times=2 <full>
5000000 3 leave 1
6000000 3 copied begin_ns=0 end_ns=18446744073709551615 bytes=18446744073709551615 in
7000000 3 lost bytes=5
8000000 3 tiers gpu=18446744073709551615 pinned=18446744073709551615 paged=0 disk=1 host=0
END
cat > "$dir/check.py" << 'END'
import json
import sys
events = json.load(open(sys.argv[1], encoding="utf-8"))["traceEvents"]
spans = [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X" and event["tid"] == 10]
assert spans == [("waiting", 0, 1000), ("loading", 1000, 1000), ("running", 2000, 250), ("idle in its turn", 2250, 1750)], spans
NAME = "to </title><b onclick=x>\" onmouseover=x y=\"' &amp; (pid 7)"
switch = [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X" and event["tid"] == 1]
assert switch == [(NAME, 1000, 1000), ("drain", 1000, 400), ("copies", 1400, 600),
                  (NAME, 0, 2100), ("plan", 0, 2100)], switch
copies = [(event["ts"], event["dur"]) for event in events if event["ph"] == "X" and event["tid"] == 2]
assert copies == [(0, 5000)], copies
END
"$ctl" trace export "$dir/good" > "$dir/json" || fail "export ended with $?"
python3 "$dir/check.py" "$dir/json" || fail "what it writes"

# A line that is being written is left out; what was before is shown.
printf '9000000 state 1 runn' | cat "$dir/good" - > "$dir/cut"
"$ctl" trace export "$dir/cut" | cmp -s - "$dir/json" || fail "a line that is cut off changes the rest"

# --- what is no trace ---
refuses 1 "$dir/none: No such file or directory" export "$dir/none"
refuses 1 "$dir: Is a directory" export "$dir"
: > "$dir/empty"
refuses 1 'nothing is recorded there' export "$dir/empty"
refuses 1 ':1: a zero byte' export "$ctl"
echo hello > "$dir/bad"
refuses 1 ':1: it does not begin with gpumux-trace 3' export "$dir/bad"
echo "$header" > "$dir/bad"
refuses 1 'nothing is recorded there' export "$dir/bad"
{ cat "$dir/good" && echo '1 3 state 1 runs'; } > "$dir/bad"
refuses 1 ':17: not a line of a trace' export "$dir/bad"
printf '%s\n1 0 gpu a\0b\n' "$header" > "$dir/bad"
refuses 1 ':2: a zero byte' export "$dir/bad"
"$ctl" trace export "$dir/good" > /dev/full 2> "$dir/err"
[ $? = 1 ] && grep -q 'the output cannot be written: No space left' "$dir/err" || fail "a full disk: $(cat "$dir/err")"
refuses 1 'cannot be written: Is a directory' export "$dir/good" -o "$dir"

# --- where a page is written: whole or not at all, for its user alone, in the place of nothing but a file ---
cp "$dir/good" "$dir/keep"
refuses 1 'is the trace itself' export "$dir/keep" -o "$dir/keep"
ln "$dir/keep" "$dir/again"
refuses 1 'is the trace itself' export "$dir/keep" -o "$dir/again"
cmp -s "$dir/good" "$dir/keep" || fail "a trace was written over itself"
umask 022
"$ctl" trace export "$dir/good" -o "$dir/page" && cmp -s "$dir/json" "$dir/page" || fail "a page in the place of nothing"
[ "$(stat -c %a "$dir/page")" = 600 ] || fail "others may read what only its user may record: $(stat -c %a "$dir/page")"
echo older > "$dir/page"
(
    trap '' XFSZ
    ulimit -f 1
    "$ctl" trace export "$dir/good" -o "$dir/page" 2> "$dir/err"
) && fail "half a page was taken"
grep -q 'page cannot be written: File too large' "$dir/err" && [ "$(cat "$dir/page")" = older ] || fail "half a page: $(cat "$dir/err")"
mkdir "$dir/theirs"
ln -s "$dir/theirs/x" "$dir/link"
mkfifo "$dir/pipe"
for odd in "$dir/link" "$dir/pipe"; do
    refuses 1 'cannot be written: there is a link, or no file' export "$dir/good" -o "$odd"
done
[ -z "$(ls "$dir/theirs")" ] && [ -p "$dir/pipe" ] && [ -z "$(ls "$dir" | grep '\.[0-9]*$')" ] || fail "traces of it: $(ls "$dir" "$dir/theirs")"

# --- recording ---
refuses 3 'gpumuxd is not running' record "$dir/new"
[ ! -e "$dir/new" ] || fail "nothing was recorded, and there is a file"
echo precious > "$dir/precious"
refuses 1 'is there and no trace' record "$dir/precious"
[ "$(cat "$dir/precious")" = precious ] || fail "a file that is no trace was changed"
cp "$dir/good" "$dir/older"
refuses 3 'gpumuxd is not running' record "$dir/older"
cmp -s "$dir/good" "$dir/older" || fail "an older trace is lost though nothing was recorded"
refuses 1 'cannot be written: there is a link, or no file' record "$dir/link"
[ -z "$(ls "$dir/theirs")" ] || fail "a link was followed"
: > "$dir/two"
ln "$dir/two" "$dir/names"
refuses 1 "is another user's, or has more names" record "$dir/two"
if [ "$(id -u)" = 0 ] && : > "$dir/foreign" && chown 65534 "$dir/foreign"; then
    refuses 1 "is another user's, or has more names" record "$dir/foreign"
fi
mkfifo "$dir/fifo"
refuses 1 'is there and no trace' record "$dir/fifo"
refuses 1 'cannot be written: No such file' record "$dir/none/x"

# --- mistakes ---
refuses 1 'say record or export'
refuses 1 'say record or export' exprot x
refuses 1 'report is gone: say export' report x
refuses 1 'export takes one file' export
refuses 1 'export takes one file' export a b
refuses 1 'export has no --seconds' export --seconds=3 "$dir/good"
refuses 1 'record has no --output' record -o x "$dir/new"
refuses 1 'is not a number from 1 to 86400' record --seconds=0 "$dir/new"
echo "traces are written as they should be, and bad ones are refused"
