#!/bin/sh
# What a program is told to be free is what it can have: with host memory too small to swap, with some, and after others
# came and went. What is told fits, two MiB more do not. By option it waits, so what it is told is the budget.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

# expect_told MIB: a program that begins now is told so much; it can have that, and no more.
expect_told() {
    app info linked --mode info --bytes 2M --allocs 1
    await info
    [ "$code" = 0 ] || fail "info: $line"
    told=$(head -n 1 "$dir/info.out" | tr ' ' '\n' | sed -n 's/^free_before=//p')
    [ "$told" = $(($1 << 20)) ] || fail "$((told >> 20)) MiB are told to be free, $1 can be had"
    take_status
    [ "$(gpu available_bytes)" = "$told" ] || fail "status says that $(gpu available_bytes) bytes can be had"
    app more linked --bytes "$(($1 + 2))M" --allocs 1 --iterations 1 --seed 8
    await more
    [ "$code" != 0 ] || fail "more was had than was told"
    app all linked --bytes "$1M" --allocs 1 --iterations 2 --seed 9
    expect_pass all
}

is_warned() {
    grep -q -- '--pinned of .* is too little to move memory out: .* go through 64 MiB: give it that' "$dir/daemon.out"
}

# 160 MiB of budget, and a window of 64 MiB of pinned memory.
start_daemon --pinned 32M
is_warned || fail "no warning says that nothing can be swapped"
expect_told 160
app one linked --bytes 96M --allocs 3 --iterations 2 --seed 1 --until "$dir/enough"
await_ready one
expect_told 64
touch "$dir/enough"
expect_pass one
expect_told 160
stop_daemon

rm -f "$dir/enough"
start_daemon --pinned 128M
! is_warned || fail "a warning, though programs can be swapped"
app one linked --bytes 96M --allocs 1 --iterations 2 --seed 1 --until "$dir/enough"
await_ready one
expect_told 128
app two linked --bytes 96M --allocs 1 --iterations 2 --seed 2 --until "$dir/enough"
await_ready two
expect_told 32
touch "$dir/enough"
expect_pass one two
stop_daemon

rm -f "$dir/enough"
start_daemon --pinned 32M --when-full wait
app one linked --bytes 96M --allocs 1 --iterations 2 --seed 1 --until "$dir/enough"
await_ready one
app info linked --mode info --bytes 2M --allocs 1
await info
grep -q "free_before=$((160 << 20)) " "$dir/info.out" || fail "who may wait is told less than the budget"
touch "$dir/enough"
expect_pass one
expect_empty
stop_daemon
