#!/bin/sh
# The ledger of a daemon under load, as the next one would find it: at whatever moment it is stopped, a table can be made of it.
. "$(dirname "$0")/lib.sh"
start_daemon --paged 256M
app one linked --bytes 96M --allocs 5 --seconds 3 --iterations 10 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 3 --seconds 3 --iterations 10 --seed 2 --until "$dir/enough"
app three linked --bytes 64M --allocs 2 --seconds 3 --iterations 10 --seed 3 --until "$dir/enough"
within "$patience" has_switched 3 || fail "nobody takes turns"
"$BUILD/tests/programs/gm_ledger_look" "$(pid_of daemon)" 150 > "$dir/look.out" 2>&1
code=$?
say "$(cat "$dir/look.out")"
[ "$code" = 0 ] || fail "a new daemon would refuse the ledger ($code): $(cat "$dir/look.out")"
grep -q ' [1-9][0-9]* copies out' "$dir/look.out" || fail "no copy out was counted"
grep -q ' [1-9][0-9]* on their way out' "$dir/look.out" || say "none was on its way out"
: > "$dir/enough"
expect_pass one two three
expect_empty
stop_daemon
