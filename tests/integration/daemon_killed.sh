#!/bin/sh
# The daemon is killed while programs of all kinds run, and there is no keeper. What runs runs on, with the driver's own memory from
# then on; what was swapped out is lost with the daemon: each program ends, with PASS or with a clean CUDA error, and never with
# wrong data. A program with everything in place goes on.
. "$(dirname "$0")/lib.sh"
without_keeper

plain() {
    orphan one linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
    orphan two linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
    orphan three proc --mode threads --bytes 48M --iterations 3 --seed 3 --until "$dir/enough"
}
pools() {
    orphan one linked --mode async --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
    orphan two proc --mode aptds --bytes 96M --threads 2 --iterations 3 --seed 2 --until "$dir/enough"
    orphan three linked --mode async --bytes 24M --threads 2 --iterations 3 --seed 3 --until "$dir/enough"
}
vmm() {
    orphan one linked --mode vmm --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
    orphan two proc --mode vmm --bytes 80M --iterations 3 --seed 2 --until "$dir/enough"
    orphan three linked --mode mappers --threads 2 --bytes 48M --iterations 3 --seed 3 --until "$dir/enough"
}
shadows() {
    orphan one linked --mode byte --bytes 96M --allocs 4 --iterations 3 --seed 1 --until "$dir/enough"
    orphan two linked --mode readonly --bytes 96M --allocs 2 --iterations 3 --seed 2 --until "$dir/enough"
    orphan three linked --mode zeros --bytes 48M --allocs 2 --iterations 3 --seed 3 --until "$dir/enough"
}

cases="plain,0 plain,2 plain,5 pools,1 pools,4 vmm,1 vmm,4 shadows,2 shadows,8"
[ "${GM_LINKED:-}" != 1 ] || cases="plain,2 pools,1 vmm,4" # a sanitizer is slow
for case in $cases; do
    part "$case switches"
    start_daemon
    ${case%,*}
    kill_daemon_at "${case#*,}"
    await daemon
    expect_orphans one two three
done

# All of them fit, so everything is in place: they must go on, and can take more, which is the driver's.
part "everything in place"
start_daemon --gpu-budget 320M
app pools linked --mode async --bytes 32M --iterations 3 --until "$dir/enough"
app vmm linked --mode vmm --bytes 32M --iterations 3 --seed 1 --until "$dir/enough"
app mappers linked --mode mappers --threads 2 --bytes 24M --iterations 3 --seed 2 --until "$dir/enough"
app sharers linked --mode sharers --threads 2 --bytes 24M --iterations 3 --seed 3 --until "$dir/enough"
app churn linked --mode churn --bytes 24M --iterations 3 --seed 4 --until "$dir/enough"
for i in pools vmm mappers sharers churn; do await_ready $i; done
kill -KILL "$(pid_of daemon)"
await daemon
touch "$dir/enough"
expect_pass pools vmm mappers sharers churn

part "the next daemon"
start_daemon
app plain linked --bytes 96M --iterations 3
app vmm linked --mode vmm --bytes 96M --iterations 3
expect_pass plain vmm
expect_empty
stop_daemon
