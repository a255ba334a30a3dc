#!/bin/sh
# A program at its own limit of open files. It notices nothing: the numbers for the daemon's files were taken at its
# start. Should they be of no use, since it lowered its limit below them, its memory comes when it has closed a file:
# until then the status says that it could not be mapped; its connection is not lost.
. "$(dirname "$0")/lib.sh"
hard=$(ulimit -H -n)
[ "$hard" = unlimited ] || [ "$hard" -ge 1000 ] || skip "the hard limit of open files here is $hard"
start_daemon --log-level debug
app kept linked --mode files --bytes 96M --iterations 30 --hold 40 --seed 1 --until "$dir/enough"
within "$patience" grep -q 'no number is left' "$dir/kept.out" || fail "it did not take all numbers"
app other linked --bytes 96M --iterations 10 --seconds 4 --seed 2 --until "$dir/enough"
await_switches 3
expect_pass kept other
! grep -q 'could not map' "$dir/daemon.out" || fail "it could not map although numbers were kept for that"
expect_switches 3
expect_empty
stop_daemon

start_daemon --log-level debug
GPUMUX_LOG="$dir/hard.log"
export GPUMUX_LOG
rm -f "$dir/enough"
app hard linked --mode nofiles --signal "$dir/hard" --bytes 96M --iterations 30 --hold 40 --seed 1 --until "$dir/enough"
unset GPUMUX_LOG
app other linked --bytes 96M --iterations 10 --seconds 4 --seed 2 --until "$dir/enough"
is_short() {
    grep -q 'could not map' "$dir/daemon.out"
}
within "$patience" is_short
touch "$dir/hard.release"
touch "$dir/enough"
expect_pass hard other
! grep -q 'is lost' "$dir/hard.log" || fail "the connection was lost"
say "$(grep refused "$dir/hard.out"); $(grep -c 'could not map' "$dir/daemon.out") batches could not be mapped"
grep -q 'could not map' "$dir/daemon.out" || fail "it was never short of files: the test tests nothing"
grep -q 'limit of open files' "$dir/hard.log" || fail "its log does not say why"
expect_empty
stop_daemon
