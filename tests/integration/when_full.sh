#!/bin/sh
# With --when-full wait a program that cannot have memory waits for it: who waits, for how long, and who does not.
. "$(dirname "$0")/lib.sh"

need_size

# More is allocated than all tiers hold: refused by default as on a full card; with --when-full wait the program waits, says why,
# and goes on when another one ends.
part "refuse and wait"
start_daemon --pinned 128M
app one linked --bytes 144M --seed 1 --until "$dir/enough"
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
app one linked --bytes 144M --seed 1 --until "$dir/enough"
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

# --when-full wait: who holds memory and asks for a little more that fits does not queue behind one that waits for a lot, which
# could only be had from him; and what can never fit is refused at once, so nobody waits behind it.
part order
is_told() {
    is_up && grep -q 'an allocation waits' "$dir/status.json"
}

# expect_refused NAME: it ends by being told that memory is out.
expect_refused() {
    await "$1"
    case $code,$line in
    "3,FAIL "*" error 2 CUDA_ERROR_OUT_OF_MEMORY") say "$1: $line" ;;
    *) fail "$1: code $code: $line" ;;
    esac
}

# 224 MiB in all: holder has 112 and asks for 32 at a time, greedy wants 144.
start_daemon --pinned 128M --when-full wait
app holder linked --mode guests --bytes 112M --iterations 5 --seed 1 --go "$dir/go"
await_ready holder
app greedy linked --bytes 144M --allocs 1 --iterations 2 --seed 2
within "$patience" is_told || fail "status does not say that greedy waits"
touch "$dir/go"
await holder
expect_pass holder greedy
[ "$(grep -c 'waits' "$dir/daemon.out")" -lt 100 ] || fail "the log says so again and again"
expect_empty
stop_daemon

# More than there is, alone and behind one that waits for its turn to come.
for oversize in refuse host; do
    start_daemon --pinned 128M --when-full wait --oversize $oversize
    app huge linked --bytes 50000M --allocs 1 --seed 3
    expect_refused huge
    app holder linked --bytes 144M --allocs 1 --iterations 2 --seed 4 --go "$dir/go.$oversize"
    await_ready holder
    app waits linked --bytes 144M --allocs 1 --iterations 2 --seed 5
    within "$patience" is_told || fail "status does not say that a program waits"
    app huge linked --bytes 50000M --allocs 1 --seed 6
    expect_refused huge
    app small linked --bytes 30M --allocs 1 --iterations 2 --seed 7
    touch "$dir/go.$oversize"
    await small
    expect_pass holder waits small
    expect_empty
    stop_daemon
done

# --when-full wait: programs that take and give back memory in turn do not keep one that waits for a lot waiting for ever; and
# programs that have memory and wait for each other come to an end, as one of them is refused.
part bound
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
patience=60
expect_pass large
patience=300
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
