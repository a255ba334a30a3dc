#!/bin/sh
# --when-full wait: who holds memory and asks for a little more that fits does not queue behind one that waits for a
# lot, which could only be had from him; and what can never fit is refused at once, so nobody waits behind it.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

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
app holder linked --mode guests --bytes 112M --iterations 5 --seconds 2 --seed 1 --go "$dir/go"
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
