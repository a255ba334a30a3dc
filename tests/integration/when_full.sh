#!/bin/sh
# More is allocated than all tiers hold: refused by default as on a full card; with --when-full wait the program
# waits, says why, and goes on when another one ends.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon --pinned 128M
app one linked --bytes 144M --seconds 3 --seed 1 --until "$dir/enough"
await_ready one
app two linked --bytes 144M --iterations 2 --seed 2
await two
[ "$code" != 0 ] || fail "two was given memory that there is not"
touch "$dir/enough"
expect_pass one
expect_empty
stop_daemon

start_daemon --pinned 128M --when-full wait
rm -f "$dir/enough"
app one linked --bytes 144M --seconds 4 --seed 1 --until "$dir/enough"
await_ready one
app two linked --bytes 144M --iterations 2 --seed 2
is_told() {
    is_up && grep -q 'an allocation waits' "$dir/status.json"
}
within "$patience" is_told || fail "status does not say why two waits"
! has_ended two || fail "two did not wait"
touch "$dir/enough"
expect_pass one two
expect_empty
stop_daemon
