#!/bin/sh
# mux-ctl trace: what is recorded of programs that take turns has their turns, switches, copies and tiers as the log and the status
# have them; the export has all of that, as Python's own parsers read it. What was recorded from before the first program on decides
# the same when it is replayed.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || skip "no python3"
check=$(cd "$(dirname "$0")" && pwd)/trace.py

# record NAME: until end_record
record() {
    spawn "record_$1" "$ctl" trace record "$dir/$1.trace"
    within "$patience" test -s "$dir/$1.trace" || fail "nothing is recorded of $1"
}
end_record() {
    sleep 0.2 # for what is recorded to have been asked for
    kill -INT "$(pid_of "record_$1")"
    await "record_$1"
    [ "$code" = 0 ] || fail "the recording of $1 ended with $code: $line"
}

start_daemon --slice 50ms
record whole
[ "$(stat -c %a "$dir/whole.trace")" = 600 ] || fail "the trace has mode $(stat -c %a "$dir/whole.trace")"
app one linked --bytes 96M --allocs 3 --iterations 3 --seed 1 --until "$dir/enough"
await_ready one
record part
app two linked --bytes 96M --allocs 3 --iterations 3 --seed 2 --until "$dir/enough"
await_ready two
"$ctl" set "$(pid_of one)" weight=2 > /dev/null || fail "set failed"
await_switches 10
expect_pass one two
cp "$dir/part.trace" "$dir/short.trace" # a shorter one takes the place of a longer one
"$ctl" trace record "$dir/short.trace" --seconds 1 > "$dir/said" || fail "recording for a second ended with $?"
grep -q "^$dir/short.trace: 1\.[0-9] s, " "$dir/said" || fail "it says: $(cat "$dir/said")"
end_record part
end_record whole
"$ctl" log --json > "$dir/log.json" || fail "log ended with $?"
"$ctl" status --json > "$dir/status.json" || fail "status ended with $?"

# A recording ends with its daemon.
record cut
stop_daemon
await record_cut
[ "$code" = 0 ] && grep -q 'the daemon is gone, so the trace ends here' "$dir/record_cut.out" || fail "the recording ended with $code: $line"

for trace in part whole; do
    "$ctl" trace export "$dir/$trace.trace" > "$dir/$trace.json" || fail "export of $trace ended with $?"
    python3 "$check" $trace "$dir/$trace.trace" "$dir/$trace.json" "$dir/log.json" "$dir/status.json" \
        "$(pid_of one)" "$(pid_of two)" > "$dir/checked" 2>&1 || fail "$trace: $(tail -n 3 "$dir/checked")"
    say "$trace: $(cat "$dir/checked")"
done
"$ctl" trace export "$dir/short.trace" > "$dir/short.json" || fail "the export of a second without programs ended with $?"
[ "$(grep -c ' join ' "$dir/whole.trace")" = 2 ] && [ "$(grep -c ' leave ' "$dir/whole.trace")" = 2 ] &&
    grep -q ' set [0-9]* weight=2000 share=1000 paused=0 auto$' "$dir/whole.trace" || fail "who came, went and was set is not in the trace"
"$BUILD/tests/sim/sim_sched" --replay "$dir/whole.trace" > "$dir/replay.out" 2>&1 || fail "it is not replayed: $(cat "$dir/replay.out")"
say "$(wc -l < "$dir/whole.trace") lines; $(grep -h decisions "$dir/replay.out")"
! "$BUILD/tests/sim/sim_sched" --replay "$dir/part.trace" > "$dir/replay.out" 2>&1 && grep -q 'begins in the middle' "$dir/replay.out" ||
    fail "a part is replayed: $(cat "$dir/replay.out")"
[ -z "${KEEP:-}" ] || cp "$dir"/*.trace "$dir"/*.json "$KEEP"
