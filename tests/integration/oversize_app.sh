#!/bin/sh
# Larger than the GPU by choice of one program: by GPUMUX_OVERSIZE, by a rule, and while it runs. It is told budget and pinned
# memory less the window of 64 MiB, gets that, and is refused more with a line that names --pinned. Beside it others are
# told the budget, and get no more.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

# expect_told NAME MIB [WAY]: it is told that its GPU has so much, and that all of it is free.
expect_told() {
    app "$1" "${3:-linked}" --mode info --bytes 2M --allocs 1
    await "$1"
    grep -q "^total=$(($2 << 20)) device_total=$(($2 << 20)) free_before=$(($2 << 20)) " "$dir/$1.out" ||
        fail "$1 is not told $2 MiB: $(head -n 1 "$dir/$1.out")"
}

# expect_refused NAME MIB TEXT: it asks for that, and the log says so.
expect_refused() {
    app "$1" linked --bytes "$2M" --allocs 1 --iterations 1 --seed 2
    await "$1"
    [ "$code" = 3 ] || fail "$1 was not refused: $line"
    grep "(pid $(pid_of "$1"), .*refused $2 MiB" "$dir/daemon.out" | grep -q -- "$3" ||
        fail "the log does not say of $1: $3"
}

start_daemon --pinned 256M --rule 'command=gm_worker_proc* oversize=host'
expect_told small 160
expect_refused small 170 'raise --gpu-budget, or take --oversize host or GPUMUX_OVERSIZE=host'
expect_told ruled 352 proc
export GPUMUX_OVERSIZE=hosts
expect_told wrong 160
grep -q 'GPUMUX_OVERSIZE is not refuse or host: going on without it' "$dir/daemon.out" || fail "a wrong word is not told"
export GPUMUX_OVERSIZE=host
expect_told large 352
expect_refused large 370 'pinned memory, which has room for 192 MiB of it, .*: raise --pinned'
unset GPUMUX_OVERSIZE

GPUMUX_OVERSIZE=host app big linked --bytes 240M --allocs 3 --iterations 2 --seed 3 --until "$dir/enough"
await_ready big
take_status
pid=$(pid_of big)
app_has "$pid" '"oversize":"host"' || fail "the status does not say that it may be larger"
[ "$(app_number "$pid" on_host_bytes)" -ge $((80 << 20)) ] || fail "nothing of it is on the host"
"$ctl" status | tr '\n' ' ' | grep -q 'MiB in host memory, read over the link' || fail "mux-ctl status does not say what is read over the link"
# The log tells at its turn, and not at every one.
is_told() { grep -q "(pid $pid, .* of its 240 MiB are in host memory, and read over the link" "$dir/daemon.out"; }
within "$patience" is_told || fail "the log does not say what is read over the link"
# No more from now on; what it has it keeps.
"$ctl" set "$pid" oversize=refuse > "$dir/set" || fail "it cannot be set"
take_status
app_has "$pid" '"oversize":"refuse"' || fail "the status does not say that it may not be larger any more"
touch "$dir/enough"
expect_pass big
expect_empty
stop_daemon
