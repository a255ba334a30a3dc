#!/bin/sh
# Sharing where it is hard: many threads that open and close at once, a forked child, a capture that is open, chunks
# in host memory, too little room beside what is shared, and a daemon that is killed.
. "$(dirname "$0")/lib.sh"
without_keeper

start_daemon
app owner linked --mode share-only --bytes 24M --allocs 3 --threads 2 --signal "$dir/race"
app one proc --mode open-race --threads 8 --iterations 200 --signal "$dir/race"
app two linked --mode open-race --threads 4 --iterations 200 --signal "$dir/race" --own-context
expect_pass owner one two
app owner linked --mode share --bytes 24M --allocs 2 --iterations 3 --threads 2 --signal "$dir/beside"
app one proc --mode open-fork --signal "$dir/beside"
app two linked --mode open-capture --signal "$dir/beside"
expect_pass owner one two
expect_empty

# an opener that cannot map all of it: it is told, and nothing of it stays
app owner linked --mode share-stay --bytes 24M --allocs 1 --iterations 1 --signal "$dir/unmapped" --threads 1
await_ready owner
for fault in cuMemMap:1=2 cuMemSetAccess:1=2 cuMemImportFromShareableHandle:1=2 cuMemAddressReserve:1=2; do
    export SIMCUDA_FAIL="$fault"
    app one linked --mode open --signal "$dir/unmapped"
    unset SIMCUDA_FAIL
    await one
    case $code,$line in
    3,*"cuIpcOpenMemHandle: error 2 "*) say "$fault: $line" ;;
    *) fail "$fault: code $code: $line" ;;
    esac
done
kill -KILL "$(pid_of owner)"
await owner
expect_empty

# 96 MiB of 160 are shared: who has 96 MiB himself comes too late, or was first
app owner linked --mode share-stay --bytes 96M --allocs 3 --iterations 1 --signal "$dir/large" --threads 1
await_ready owner
app late linked --mode verify --bytes 96M --allocs 1 --iterations 1
await late
case $code,$line in
3,*"cuMemAlloc: error 2 "*) say "late: $line" ;;
*) fail "too much beside what is shared: code $code: $line" ;;
esac
app fits linked --mode info --bytes 64M --allocs 1
expect_pass fits
grep -q "^total=$((64 * 1048576 / shrink)) " "$dir/fits.out" || fail "what is shared is not room: $(head -n 1 "$dir/fits.out")"
kill -KILL "$(pid_of owner)"
await owner
expect_empty
app first linked --mode verify --bytes 96M --allocs 1 --iterations 1 --go "$dir/first.go"
await_ready first
app owner linked --mode share --bytes 96M --allocs 1 --iterations 1 --signal "$dir/refused" --threads 1
await owner
case $code,$line in
3,*"cuIpcGetMemHandle: error 2 "*) say "owner: $line" ;;
*) fail "shared although the first could not run beside it: code $code: $line" ;;
esac
touch "$dir/first.go"
expect_pass first
expect_empty
check_daemon

# the daemon killed, with everything in place: all go on, and can close
app owner linked --mode share --bytes 24M --allocs 2 --iterations 40 --pause 20 --threads 1 --signal "$dir/lost"
app one proc --mode open --signal "$dir/lost"
await_ready one
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass owner one

# a program larger than the budget shares what is on the GPU and what is not
start_daemon --oversize host
app owner linked --mode share --bytes 224M --allocs 4 --iterations 4 --threads 1 --signal "$dir/oversize"
app one proc --mode open --signal "$dir/oversize" --go "$dir/oversize.go"
await_ready one
take_status
[ "$(app_number "$(pid_of owner)" on_host_bytes)" -gt 0 ] || fail "nothing of it is on the host"
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((224 * 1048576 / shrink))" ] || fail "not all of it is shared"
touch "$dir/oversize.go"
expect_pass owner one
expect_empty
check_daemon
stop_daemon
