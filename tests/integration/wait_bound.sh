#!/bin/sh
# --when-full wait: programs that take and give back memory in turn do not keep one that waits for a lot waiting for
# ever; and programs that have memory and wait for each other come to an end, as one of them is refused.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

# 192 MiB in all. Each of four keeps 4 and has 24 more for most of the time: what is left beside them when only one of
# them has its 24 is 152, and the large one needs 156. They begin so that there is always one of them that has it.
start_daemon --pinned 96M --when-full wait --patience 1s
for i in 1 2 3 4; do
    app "cycle$i" linked --mode cycle --bytes 24M --allocs 6 --hold 1000 --iterations 1 --seed "$i" --until "$dir/enough"
    await_ready "cycle$i"
    sleep 0.3
done
app large linked --bytes 156M --allocs 1 --iterations 2 --seed 5
# It waits for a second and then until each of the others has had its own. Not for as long as they come and go.
usual=$patience patience=60
expect_pass large
patience=$usual
for i in 1 2 3 4; do ! has_ended "cycle$i" || fail "cycle$i ended early: $(tail -n 1 "$dir/cycle$i.out")"; done
touch "$dir/enough"
expect_pass cycle1 cycle2 cycle3 cycle4
expect_empty
stop_daemon

# 160 MiB in all. Both keep 52 and want 104 more: what is left is 56, and neither can have it while the other stays.
start_daemon --pinned 64M --when-full wait
for i in 1 2; do
    app "both$i" linked --mode cycle --bytes 104M --allocs 2 --hold 10 --iterations 1 --seed "$i" --go "$dir/go"
done
for i in 1 2; do await_ready "both$i"; done
touch "$dir/go"
refused=0
patience=60
for i in 1 2; do
    await "both$i"
    case $code,$line in
    "0,PASS "*" mismatches=0 "*) ;;
    "3,FAIL "*" error 2 CUDA_ERROR_OUT_OF_MEMORY") refused=$((refused + 1)) ;;
    *) fail "both$i: code $code: $line" ;;
    esac
done
[ "$refused" = 1 ] || fail "$refused were refused"
expect_empty
stop_daemon
