#!/bin/sh
# Who was refused memory, how much, why, and what to raise: the daemon's log, mux-ctl log and mux-ctl status say it,
# also when the program is gone. One that tries again and again gets one line a second.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

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
