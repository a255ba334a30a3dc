#!/bin/sh
# Memory is out: what a program is told to have, what it gets beyond that, and who says why.
. "$(dirname "$0")/lib.sh"

# Beyond the budget an allocation fails with CUDA_ERROR_OUT_OF_MEMORY and the program goes on, alone and beside another; also when
# host memory, not the budget, is what runs out.
part plain
start_daemon
app alone linked --mode oom --bytes 160M --allocs 10 --iterations 3
expect_pass alone
grep -q 'out of memory after' "$dir/alone.out" || fail "memory was never out"
app one linked --mode oom --bytes 160M --allocs 10 --iterations 3 --seed 1
app two linked --bytes 96M --iterations 5 --seed 2
expect_pass one two
expect_empty
stop_daemon
start_daemon --pinned 32M
app one linked --bytes 96M --iterations 1 --seed 1 --until "$dir/enough"
await_ready one
app two linked --mode oom --bytes 160M --allocs 20 --iterations 3 --seed 2
expect_pass two
touch "$dir/enough"
expect_pass one
expect_empty
stop_daemon

# cuMemCreate beyond the budget answers CUDA_ERROR_OUT_OF_MEMORY and the program goes on, alone, beside another, and when host
# memory is what runs out.
part handles
start_daemon
app alone linked --mode vmmoom --bytes 160M --allocs 10 --iterations 5
expect_pass alone
app one linked --mode vmmoom --bytes 160M --allocs 10 --iterations 5 --seed 1
app two linked --mode vmm --bytes 96M --iterations 5 --seed 2
expect_pass one two
expect_empty
stop_daemon
start_daemon --pinned 32M
app one linked --mode vmm --bytes 96M --allocs 1 --iterations 5 --seconds 1 --seed 1
await_ready one
app two linked --mode vmmoom --bytes 160M --allocs 20 --iterations 3 --seed 2
# one may be told, too: it creates handles as it goes
for app in one two; do
    await $app
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*"cuMemCreate: error 2 CUDA_ERROR_OUT_OF_MEMORY"*)
        say "$app: $line" ;;
    *) fail "$app ended with $code: $line" ;;
    esac
done
expect_empty
stop_daemon

need_size

# What a program is told to be free is what it can have: with host memory too small to swap, with some, and after others came and
# went. What is told fits, two MiB more do not. By option it waits, so what it is told is the budget.
part told
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

# Who was refused memory, how much, why, and what to raise: the daemon's log, mux-ctl log and mux-ctl status say it, also when the
# program is gone. One that tries again and again gets one line a second.
part "who and why"
# refused MIB: a program asks for that, and ends as it does not get it.
refused() {
    app asker linked --bytes "$1M" --allocs 1 --iterations 1 --seed 9
    await asker
    [ "$code" = 3 ] || fail "asker was not refused: $line"
    pid=$(pid_of asker)
}

# tells PATTERN...: the three of them say it of the last one refused.
tells() {
    "$ctl" status | tr '\n' ' ' > "$dir/status.text"
    "$ctl" log > "$dir/log.text"
    for told in daemon.out log.text status.text; do
        grep "pid $pid, gm_worker.*refused" "$dir/$told" | tail -n 1 > "$dir/told"
        for pattern; do
            grep -q -- "$pattern" "$dir/told" || fail "$told does not say \"$pattern\": $(cat "$dir/told")"
        done
    done
    take_status
    say "$(grep 'refused' "$dir/log.text" | tail -n 1)"
}

start_daemon --pinned 128M
refused 170
tells 'refused 170 MiB' 'budget of 160 MiB' 'raise --gpu-budget, or take --oversize host'
app holder linked --bytes 144M --allocs 1 --iterations 1 --seed 1 --until "$dir/enough"
await_ready holder
refused 100
tells 'refused 100 MiB' 'all tiers together hold 224 MiB' '144 MiB are taken' 'raise --pinned, --paged or --disk'
[ "$(json_after totals refused_allocs "$dir/status.json")" = 2 ] || fail "not two are counted"
"$ctl" status | grep -q 'room    80 MiB for a program that starts now' || fail "status does not say what can be had"
"$ctl" log --json | grep '"kind":"refused"' | grep '"bytes":104857600' | grep '"why":"full"' |
    grep -q '"raise":"--pinned, --paged or --disk"' || fail "the log's JSON does not say it"

# It tries again and again, until all is taken and after.
app prober linked --mode oom --bytes 16M --allocs 8 --iterations 12 --seconds 2 --seed 2
expect_pass prober
tried=$(grep -c 'out of memory after' "$dir/prober.out")
pid=$(pid_of prober)
tells "all tiers together hold"
lines=$(grep -c "pid $pid, gm_worker).*: refused" "$dir/daemon.out")
took=$(sed -n 's/.* seconds=\([0-9]*\)\..*/\1/p' "$dir/prober.out" | tail -n 1)
say "$lines lines of $tried refusals in $took s"
[ "$lines" -le $((took + 3)) ] || fail "$lines lines in $took s"
take_status
[ "$(json_after totals refused_allocs "$dir/status.json")" -ge $((2 + tried)) ] || fail "some are not counted"
touch "$dir/enough"
expect_pass holder
expect_empty
stop_daemon

start_daemon --pinned 32M
app holder linked --bytes 144M --allocs 1 --iterations 1 --seed 1 --go "$dir/go"
await_ready holder
refused 100
tells 'refused 100 MiB' 'pinned memory is too small to swap anything' 'raise --pinned'
touch "$dir/go"
expect_pass holder
stop_daemon

start_daemon --pinned 64M --oversize host
refused 500
tells 'refused 500 MiB' 'beyond the budget or a cap is in pinned memory, which has room for 0' 'raise --pinned'
stop_daemon
