#!/bin/sh
# Too little pinned memory for a whole switch, and nothing below it: evictions wait until copies in have given room
# back. The status and the log call that a wait for pinned room, not for lower tiers.
. "$(dirname "$0")/lib.sh"
need_size

# parts NAME: of all switches kept, one a line.
parts() {
    tr -d ' \n\t' < "$dir/status.json" | sed 's/.*"history":\[//; s/\].*//' | grep -o "\"$1\":[0-9.e+-]*" | cut -d: -f2
}
has_waited() {
    is_up && parts pinned_ms | grep -qv '^0$'
}

export SIMCUDA_NO_COUNTERS=1 # trials need pinned memory, too
export SIMCUDA_COPY_RATE=1G
start_daemon --pinned 224M
app one linked --bytes 144M --allocs 3 --iterations 3 --seed 1 --until "$dir/enough"
app two linked --bytes 144M --allocs 3 --iterations 3 --seed 2 --until "$dir/enough"
within "$patience" has_waited || fail "nothing waits for pinned room"
await_switches 2
expect_pass one two
expect_switches 2
take_status
[ "$(parts lower_ms | sort -u)" = 0 ] || fail "it waits for lower tiers, and there are none: $(parts lower_ms | tr '\n' ' ')"
"$ctl" log | grep -q 'pinned [0-9.]*[1-9]' || fail "the log does not say it"
say "waits for pinned room, ms: $(parts pinned_ms | tr '\n' ' ')"
expect_empty
stop_daemon
