#!/bin/sh
# mux-ctl trace: what is recorded of programs that take turns has their turns, switches, copies and tiers as the log and the status
# have them; the export has all of that, as Python's own parsers read it. The same of gpumuxd --record.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || skip "no python3"
check=$(cd "$(dirname "$0")" && pwd)/trace.py

start_daemon --slice 50ms --record "$dir/whole.trace"
app one linked --bytes 96M --allocs 3 --seconds 2 --iterations 10 --seed 1 --until "$dir/enough"
await_ready one
spawn record "$ctl" trace record "$dir/part.trace"
app two linked --bytes 96M --allocs 3 --seconds 2 --iterations 10 --seed 2 --until "$dir/enough"
await_ready two
"$ctl" set "$(pid_of one)" weight=2 > /dev/null || fail "set failed"
await_switches 10
expect_pass one two
cp "$dir/part.trace" "$dir/short.trace" # a shorter one takes the place of a longer one
"$ctl" trace record "$dir/short.trace" --seconds 1 > "$dir/said" || fail "recording for a second ended with $?"
grep -q "^$dir/short.trace: 1\.[0-9] s, " "$dir/said" || fail "it says: $(cat "$dir/said")"
sleep 0.2 # for what is recorded to have been asked for
kill -INT "$(pid_of record)"
await record
[ "$code" = 0 ] || fail "the recording ended with $code: $line"
"$ctl" log --json > "$dir/log.json" || fail "log ended with $?"
"$ctl" status --json > "$dir/status.json" || fail "status ended with $?"

# A recording ends with its daemon.
spawn record "$ctl" trace record "$dir/cut.trace"
is_recording() { [ -s "$dir/cut.trace" ]; }
within "$patience" is_recording || fail "nothing is recorded"
stop_daemon
await record
[ "$code" = 0 ] && grep -q 'the daemon is gone, so the trace ends here' "$dir/record.out" || fail "the recording ended with $code: $line"

for trace in part whole; do
    "$ctl" trace export "$dir/$trace.trace" > "$dir/$trace.json" || fail "export of $trace ended with $?"
    python3 "$check" $trace "$dir/$trace.trace" "$dir/$trace.json" "$dir/log.json" "$dir/status.json" \
        "$(pid_of one)" "$(pid_of two)" > "$dir/checked" 2>&1 || fail "$trace: $(tail -n 3 "$dir/checked")"
    say "$trace: $(cat "$dir/checked")"
done
"$ctl" trace export "$dir/short.trace" > "$dir/short.json" || fail "the export of a second without programs ended with $?"
"$BUILD/tests/sim/sim_sched" --replay "$dir/whole.trace" > "$dir/replay.out" 2>&1 || fail "it is not replayed: $(cat "$dir/replay.out")"
! "$BUILD/tests/sim/sim_sched" --replay "$dir/part.trace" > "$dir/replay.out" 2>&1 && grep -q 'begins in the middle' "$dir/replay.out" ||
    fail "a part is replayed: $(cat "$dir/replay.out")"
[ -z "${KEEP:-}" ] || cp "$dir"/*.trace "$dir"/*.json "$KEEP"
