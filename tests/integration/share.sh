#!/bin/sh
# Two programs open what a third shares, and all three write it in turn, under switches with a fourth: what is shared
# stays on the GPU whoever runs, is counted, and nothing of it is left in the end.
. "$(dirname "$0")/lib.sh"

start_daemon
app hog linked --mode verify --bytes 96M --allocs 3 --seconds 4 --seed 5
app owner proc --mode share --bytes 48M --allocs 3 --iterations 30 --threads 2 --signal "$dir/meeting"
app one linked --mode open --signal "$dir/meeting" --go "$dir/go"
app two dlsym --mode open --signal "$dir/meeting" --own-context --go "$dir/go"
await_ready owner
await_ready one
await_ready two
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((48 * 1048576 / shrink))" ] ||
    fail "the owner shares $(app_number "$(pid_of owner)" shared_bytes) bytes"
[ "$(app_number "$(pid_of one)" opened_bytes)" = "$((48 * 1048576 / shrink))" ] ||
    fail "an opener has $(app_number "$(pid_of one)" opened_bytes) bytes open"
[ "$(gpu shared_bytes)" = "$((48 * 1048576 / shrink))" ] || fail "$(gpu shared_bytes) bytes are shared in all"
"$ctl" status > "$dir/table.out"
grep -q 'shares 48' "$dir/table.out" || [ "$shrink" != 1 ] || fail "the table does not say what is shared"
touch "$dir/go"
expect_pass owner one two hog
expect_empty
check_daemon
[ "$(gpu shared_bytes)" = 0 ] || fail "$(gpu shared_bytes) bytes are shared still"

# Enough for two of them at once and never for three: they take turns.
app hog linked --mode verify --bytes 96M --allocs 3 --iterations 20 --seed 6 --until "$dir/enough"
app owner linked --mode share --bytes 48M --allocs 2 --iterations 12 --threads 1 --signal "$dir/other"
await_ready owner
app one proc --mode open --signal "$dir/other"
app more linked --mode verify --bytes 96M --allocs 2 --iterations 10 --seed 8 --until "$dir/enough"
await_switches 3
expect_pass owner one hog more
expect_switches 3
expect_empty
check_daemon
stop_daemon
