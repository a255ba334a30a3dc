#!/bin/sh
# A switch is called off for a program that goes first: what was being brought in stops coming, the better one is
# brought in, and every byte of all of them is right, with tiers below pinned memory as well.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/disk"
export SIMCUDA_COPY_RATE=$((120 / shrink))M
start_daemon --slice 200ms --pinned 288M --paged 64M --disk "$dir/disk:512M" --best-class latency --log-level debug
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs 12 --iterations 2 --seed "$i" --until "$dir/enough"
done
# It is idle for longer than a turn, and comes back at any point of a switch.
export GPUMUX_CLASS=latency
app better linked --bytes 96M --allocs 12 --iterations 2 --pause 700 --seed 9 --until "$dir/enough"
unset GPUMUX_CLASS
await_ready better
better=$(pid_of better)

# Somebody else is on his way to the GPU, and right after that the better one is: nobody was let in between.
is_overtaken() {
    awk -v better="(pid $better):" '
        / loading -> paused$/ { dropped = NR }
        / loading -> running$/ { dropped = 0 }
        / paused -> loading$/ && index($0, better) && dropped { found++; dropped = 0 }
        END { exit found < 3 }' "$dir/daemon.out"
}
within "$patience" is_overtaken || fail "no switch was called off for the better one"
touch "$dir/enough"
expect_pass app1 app2 app3 better
expect_switches 4
expect_empty
stop_daemon
