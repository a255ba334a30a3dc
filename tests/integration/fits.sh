#!/bin/sh
# When everything fits, nobody is ever stopped and nothing moves.
. "$(dirname "$0")/lib.sh"
start_daemon --gpu-budget 320M
app one linked --bytes 96M --iterations 10 --seconds 2 --seed 1
app two dlsym --mode graph --bytes 96M --iterations 10 --seconds 2 --seed 2
app three proc --mode ptds --bytes 48M --iterations 10 --seconds 2 --seed 3
expect_pass one two three
take_status
say "switches=$(gpu switches) bytes_in=$(gpu bytes_in) bytes_out=$(gpu bytes_out)"
[ "$(gpu switches)" = 0 ] || fail "$(gpu switches) switches although everything fits"
[ "$(gpu bytes_out)" = 0 ] && [ "$(gpu bytes_in)" = 0 ] || fail "memory moved although everything fits"
expect_empty
stop_daemon
