#!/bin/sh
# The ledgers of a daemon under load, as the next one would find it: at whatever moment it is stopped, a table can be made of it.
. "$(dirname "$0")/lib.sh"
start_daemon --paged 256M
app one linked --bytes 96M --allocs 5 --iterations 3 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 3 --iterations 3 --seed 2 --until "$dir/enough"
app three linked --bytes 64M --allocs 2 --iterations 3 --seed 3 --until "$dir/enough"
within "$patience" has_switched 3 || fail "nobody takes turns"
"$BUILD/tests/programs/gm_ledger_look" "$(pid_of daemon)" 150 > "$dir/look.out" 2>&1
code=$?
say "$(cat "$dir/look.out")"
[ "$code" = 0 ] || fail "a new daemon would refuse the ledger ($code): $(cat "$dir/look.out")"
grep -q ' [1-9][0-9]* copies out' "$dir/look.out" || fail "no copy out was counted"
grep -q ' [1-9][0-9]* on their way out' "$dir/look.out" || say "none was on its way out"
# What was said of a program, and where it stands, is there, too: at once what is said, within a second what changes by itself.
"$ctl" set "$(pid_of two)" weight=0.5 paused=yes > /dev/null || fail "two is not paused"
"$BUILD/tests/programs/gm_ledger_look" "$(pid_of daemon)" programs > "$dir/programs.out" 2>&1 || fail "the programs cannot be read: $(cat "$dir/programs.out")"
say "$(cat "$dir/programs.out")"
started=$(sed 's/.*) //' "/proc/$(pid_of two)/stat" | cut -d ' ' -f 20)
grep -q "pid=$(pid_of two) uid=$(id -u) started=$started .* gpus=1 level=[1-9] charged=[1-9].* paused=1 weight=500 gone=0 nonce=1$" "$dir/programs.out" || fail "two is not as it should be"
[ "$(wc -l < "$dir/programs.out")" = 3 ] || fail "there are not three programs"
"$ctl" set "$(pid_of two)" paused=no weight=1 > /dev/null || fail "two does not go on"
: > "$dir/enough"
expect_pass one two three
expect_empty
[ -z "$("$BUILD/tests/programs/gm_ledger_look" "$(pid_of daemon)" programs)" ] || fail "there are programs that have ended"
stop_daemon
