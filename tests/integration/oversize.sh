#!/bin/sh
# Programs larger than the budget, by the daemon's option or by their own choice.
. "$(dirname "$0")/lib.sh"

# Programs larger than the budget: refused by default, as on a real card; with --oversize host the rest is mapped on the host and
# everything verifies, also beside another program and when the pinned tier has grown to its cap before, and nothing is left
# behind. Together they get the budget and pinned memory less the streaming window of 64 MiB.
part "by option"
pinned=$((512 * 1024 * 1024))

# Nothing is pinned for nobody.
is_whole() {
    is_up && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] && [ "$(gpu_tier pinned_bytes)" = 0 ]
}

# A part of it is mapped on the host, in pinned memory.
is_on_host() {
    is_up && [ "$(gpu_tier on_host_bytes)" -ge $((80 * 1024 * 1024 / shrink)) ] &&
        [ "$(gpu_tier pinned_used_bytes)" -ge "$(gpu_tier on_host_bytes)" ] &&
        [ "$(gpu_tier pinned_bytes)" -le "$pinned" ]
}

# Programs that do not fit together make the pinned tier grow to its cap: 320 MiB do not fit, and as much again is ahead.
is_grown() {
    is_up && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] && [ "$(gpu_tier pinned_bytes)" = "$pinned" ]
}
grow_pinned() {
    for i in 1 2 3 4; do
        app "grow$i" linked --bytes 120M --allocs 1 --iterations 100000 --seed "$i"
    done
    within "$patience" is_grown ||
        fail "the pinned tier has $(gpu_tier pinned_bytes) of $pinned bytes, cap $(gpu_tier pinned_cap_bytes)"
    for i in 1 2 3 4; do kill -KILL "$(pid_of "grow$i")"; done
    expect_empty
}

start_daemon
app big linked --bytes 240M --allocs 2 --iterations 2 --seed 1
await big
[ "$code" != 0 ] || fail "a program got more than the budget"
expect_empty
stop_daemon

# The tier was at its cap just before.
start_daemon --oversize host
[ "$shrink" != 1 ] || grow_pinned
app big linked --bytes 240M --allocs 2 --iterations 1000 --seed 2
await_ready big
is_on_host || fail "pinned: $(gpu_tier pinned_used_bytes) bytes used of $(gpu_tier pinned_bytes), on host $(gpu_tier on_host_bytes)"
kill -KILL "$(pid_of big)"
expect_empty
within "$patience" is_whole ||
    fail "$(gpu_tier pinned_bytes) bytes are pinned for nobody, cap $(gpu_tier pinned_cap_bytes)"
# The program needs all of it, and cannot have more.
app big linked --bytes 608M --allocs 4 --iterations 1 --seed 3
expect_pass big
expect_empty
stop_daemon

# What others were promised is not given away, though nothing of it is used yet: 420 MiB of theirs need all of the budget and
# 260 of the 512 MiB pinned, 64 stay free for moving, and the program would need 256.
is_promised() {
    is_up && [ "$(gpu committed_bytes)" = $((420 * 1024 * 1024)) ]
}
if [ "$shrink" = 1 ]; then
    start_daemon --oversize host --slice 1000s --idle 1000s
    for i in 1 2 3; do
        app "other$i" linked --bytes 140M --allocs 1 --iterations 100000 --seed "$i"
        [ "$i" != 1 ] || await_ready other1 # it runs, the others wait
    done
    within "$patience" is_promised || fail "$(gpu committed_bytes) bytes are promised"
    app big linked --bytes 416M --allocs 1 --iterations 1 --seed 5
    await big
    case $line in
    *" error 2 CUDA_ERROR_OUT_OF_MEMORY") ;;
    *) fail "a program got what others were promised: $line" ;;
    esac
    take_status
    [ "$(gpu_tier pinned_used_bytes)" = 0 ] && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] ||
        fail "$(gpu_tier pinned_used_bytes) bytes used of $(gpu_tier pinned_cap_bytes), and none should be, of all"
    for i in 1 2 3; do
        ! has_ended "other$i" || fail "other$i ended: $(tail -n 1 "$dir/other$i.out")"
        kill -KILL "$(pid_of "other$i")"
    done
    expect_empty
    stop_daemon
fi

start_daemon --oversize host
app big linked --bytes 240M --allocs 2 --iterations 2 --seed 1
expect_pass big
expect_empty
app big linked --bytes 240M --allocs 3 --iterations 3 --seed 2 --until "$dir/enough"
app other linked --bytes 96M --allocs 2 --iterations 3 --seed 3 --until "$dir/enough"
app churn linked --mode churn --bytes 64M --iterations 10 --seed 4
await_switches 2
expect_pass big other churn
expect_switches 2
app killed linked --bytes 240M --allocs 3 --iterations 1000 --seed 5
await_ready killed
kill -KILL "$(pid_of killed)"
expect_empty
app after linked --bytes 240M --allocs 3 --iterations 2 --seed 6
expect_pass after
expect_empty
stop_daemon

need_size

# Larger than the GPU by choice of one program: by GPUMUX_OVERSIZE, by a rule, and while it runs. It is told budget and pinned
# memory less the window of 64 MiB, gets that, and is refused more with a line that names --pinned. Beside it others are told the
# budget, and get no more.
part "by choice"
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

# --oversize host with a tier below pinned memory: a large program cannot borrow the pinned memory through which what others have
# in that tier comes back. It is refused the part that is too much, and they all go on.
part "beside a lower tier"
is_paged() {
    is_up && [ "$(gpu_tier paged_used_bytes)" -gt 0 ] && [ "$(app_number "$(pid_of paged)" resident_bytes)" = 0 ] &&
        [ "$(app_number "$(pid_of paged)" pinned_bytes)" -lt "$(app_number "$(pid_of paged)" total_bytes)" ]
}

# leaves_alone: those which pushed it out are gone, and the GPU is free.
leaves_alone() {
    is_up && [ "$(apps)" = 1 ] && [ "$(gpu_tier gpu_bytes)" = 0 ]
}

# round N: the large program asks for 130 MiB N times, and all but the first would be in pinned memory.
round() {
    rm -f "$dir"/go.*
    start_daemon --oversize host --pinned 288M --paged 512M --slice 300ms
    app paged linked --bytes 24M --allocs 1 --iterations 3 --seed 1 --go "$dir/go.paged"
    await_ready paged
    for i in 2 3; do
        app "push$i" linked --bytes 152M --allocs 1 --iterations 100000 --seed "$i"
        await_ready "push$i"
    done
    within "$patience" is_paged || fail "nothing of the idle program is in paged memory"
    for i in 2 3; do kill -KILL "$(pid_of "push$i")"; done
    within "$patience" leaves_alone || fail "$(apps) apps, $(gpu_tier gpu_bytes) bytes on the GPU"
    is_paged || fail "what was in paged memory came back by itself"

    app large linked --bytes "$(($1 * 130))M" --allocs "$1" --iterations 3 --seed 4 --go "$dir/go.large"
    within "$patience" is_ready large || fail "large neither got its memory nor was refused"
    touch "$dir/go.paged"
    await paged
    expect_pass paged
    touch "$dir/go.large"
    await large
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*" error 2 CUDA_ERROR_OUT_OF_MEMORY") say "large: $line" ;;
    *) fail "large ended with $code: $line" ;;
    esac
    expect_empty
    stop_daemon
}

round 2
round 3

# The driver refuses a large program one mapping, of new memory: that is an ordinary out-of-memory, after which the program goes
# on, can have as much as ever, and leaves nothing behind.
part "a mapping is refused"
# had: what could be had, a line a round.
had() {
    grep -o 'after [0-9]*' "$dir/big.out" | cut -d' ' -f2
}

# 300 MiB are 11 mappings. Of the second 300 the first fails, when most of the rest is not made yet, or a later one. Or
# a mapping of the first 300 fails in their new place, on the host, where they make way: that is tried again.
for call in cuMemMap:12 cuMemMap:22; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon --oversize host --pinned 512M
    export SIMCUDA_FAIL="$call"
    app big linked --mode oom --bytes 300M --allocs 1 --iterations 2 --pause 200 --seed 1
    unset SIMCUDA_FAIL
    await big
    [ "$code,${line%% *}" = 0,PASS ] || fail "$call: code $code: $line"
    expect_pass big
    grep -q 'could not map' "$dir/daemon.out" || fail "$call: nothing failed"
    [ "$call" = cuMemMap:22 ] || [ "$(had | head -n 1)" = $((300 << 20)) ] || fail "$call: it got all"
    had | grep -qx $((600 << 20)) || fail "$call: it never had more again"
    expect_empty
    [ "$(gpu_tier pinned_cap_bytes)" = $((512 << 20)) ] || fail "$call: $(gpu_tier pinned_cap_bytes) bytes left to lend"
    ! grep -q 'refused: ' "$dir/daemon.out" || fail "$call: the session was ended"
    stop_daemon
done
