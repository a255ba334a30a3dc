#!/bin/sh
# The driver refuses pinned memory or mappings for long, or copies fail: nobody hangs, and what is left goes on.
. "$(dirname "$0")/lib.sh"
without_keeper

# The system refuses pinned memory, once and for long: nobody hangs, and when it is granted the rest goes on.
part "pinned memory"
for calls in 6 6,cuMemCreate:7,cuMemCreate:8; do
    SIMCUDA_FAIL="cuMemCreate:$calls" start_daemon
    app one linked --bytes 96M --allocs 3 --iterations 3 --seconds 1 --seed 1
    await_ready one
    app two linked --bytes 96M --allocs 3 --iterations 3 --seconds 1 --seed 2
    expect_pass one two
    expect_empty
    stop_daemon
done

# The driver refuses one program every mapping, for good: it waits, others get their turns as ever, and the log says so now and
# then, not all the time.
part mappings
# app_without_maps N NAME ARGUMENT...: from its N-th mapping on they are refused.
app_without_maps() {
    export SIMCUDA_FAIL="cuMemMap:$1+"
    without_name=$2
    shift 2
    app "$without_name" linked "$@"
    unset SIMCUDA_FAIL
}

lines() {
    wc -l < "$dir/daemon.out"
}

# expect_quiet: the log grows by fewer than 20 lines a second.
expect_quiet() {
    quiet_lines=$(lines)
    quiet_from=$(date +%s)
    sleep 2
    quiet_lines=$(($(lines) - quiet_lines))
    quiet_seconds=$(($(date +%s) - quiet_from))
    say "$quiet_lines lines logged in $quiet_seconds s"
    [ "$quiet_lines" -lt $((quiet_seconds * 20)) ] || fail "$quiet_lines lines in $quiet_seconds s"
}

# It has had turns when it starts to fail, and is one of those that take turns.
start_daemon
app_without_maps 20 bad --bytes 96M --iterations 100000 --seed 1
app good linked --bytes 96M --iterations 6 --seed 2
app better linked --bytes 96M --iterations 6 --seed 3
await good
await better
expect_pass good better
check_daemon
! has_ended bad || fail "bad ended: $(tail -n 1 "$dir/bad.out")"
kill -KILL "$(pid_of bad)"
expect_empty
stop_daemon

# It never had one, and its memory is staged while another one runs.
start_default
app good linked --bytes 96M --iterations 100000 --seed 2
await_ready good
app_without_maps 1 bad --bytes 96M --allocs 1 --iterations 100000 --seed 1
expect_quiet
for i in good bad; do kill -KILL "$(pid_of $i)"; done
expect_empty
stop_daemon

# Copies of the daemon fail, from the GPU and to it, once and for a while, and so do the events around them. The move is undone or
# made again, the daemon goes on, and programs verify every byte. Only when its CUDA context is lost does the daemon end: it says
# so and tells each program, those whose memory is whole go on, and the others end with an error.
part copies

start_failing() {
    rm -f "$GPUMUX_SOCKET" "$dir/enough"
    export SIMCUDA_FAIL="$1"
    shift
    start_daemon --gpu-budget 64M --pinned 192M --slice 30ms "$@"
    unset SIMCUDA_FAIL
}

has_failed() {
    grep -q "a copy .* the GPU failed (CUDA_ERROR_UNKNOWN): its memory stays where it is" "$dir/daemon.out"
}

# one_fault FAULT [TOLD]: TOLD, the log tells of a failed copy.
one_fault() {
    start_failing "$1"
    for i in 1 2; do
        app "app$i" linked --bytes 44M --allocs 2 --iterations 4 --seed "$i" --until "$dir/enough"
    done
    await_switches 6
    [ "${2:-}" != told ] || within "$patience" has_failed || fail "$1: the log tells of no copy"
    expect_pass app1 app2
    expect_switches 6
    check_daemon
    app after linked --bytes 44M --allocs 2 --iterations 1 --seed 3
    expect_pass after
    expect_empty
    stop_daemon
    say "$1: passed"
}

# Evictions come first, so the first copies are out; a few switches on they go both ways.
for n in 1 2 9 12; do one_fault "cuMemcpyAsync:$n" told; done
one_fault cuMemcpyAsync:1,cuMemcpyAsync:2,cuMemcpyAsync:3,cuMemcpyAsync:4 told
one_fault cuEventRecord:1,cuEventRecord:4,cuStreamWaitEvent:1,cuStreamWaitEvent:3,cuEventSynchronize:1

# Clearing what a program had before another gets it.
start_failing cuMemsetD32Async:1,cuMemsetD32Async:2,cuMemsetD32Async:4
for i in 1 2; do
    app "app$i" linked --bytes 44M --allocs 6 --iterations 2 --seed "$i" --until "$dir/enough"
done
for i in 1 2; do await_ready "app$i"; done
for i in 1 2 3; do
    app "fresh$i" linked --mode fresh --bytes 40M --allocs 5 --seed "$((10 + i))"
    expect_pass "fresh$i"
done
touch "$dir/enough"
expect_pass app1 app2
grep -q "GPU memory could not be cleared\|a copy to the GPU failed" "$dir/daemon.out" || fail "nothing failed to be cleared"
expect_empty
stop_daemon

# Exchanges of a program that is larger than the budget: the copy out, and the copy in.
has_traded() {
    has_ended hot || { is_up && [ "$(app_number "$(pid_of hot)" exchanged_bytes)" -gt 0 ]; }
}
for n in 1 2; do
    start_failing "cuMemcpyAsync:$n" --oversize host
    app hot linked --mode hot --bytes 96M --allocs 3 --iterations 3 --seed 1 --until "$dir/enough"
    within "$patience" has_failed || fail "no copy of an exchange failed"
    within "$patience" has_traded || fail "nothing was exchanged"
    touch "$dir/enough"
    expect_pass hot
    expect_empty
    stop_daemon
    say "copy $n of an exchange: passed"
done

# The context is lost.
lost=
for call in cuMemcpyAsync:6 cuEventRecord:7 cuStreamWaitEvent:2 cuStreamSynchronize:1; do lost=$lost,$call+=700; done
start_failing "${lost#,}"
for i in 1 2; do
    app "app$i" linked --bytes 44M --allocs 2 --iterations 4 --seed "$i" --until "$dir/enough"
done
await daemon
touch "$dir/enough"
[ "$code" = 1 ] || fail "the daemon ended with $code"
grep -q "the daemon's CUDA context is lost (CUDA_ERROR_ILLEGAL_ADDRESS): stopping" "$dir/daemon.out" ||
    fail "the daemon does not say why it ended"
for i in 1 2; do
    grep -q "pid $(pid_of "app$i"),.*refused: the daemon has lost the GPU (CUDA_ERROR_ILLEGAL_ADDRESS)" \
        "$dir/daemon.out" || fail "app$i was not told"
    await "app$i"
    case $code,$line in
    0,"PASS "*" mismatches=0 "*) ;;
    *) is_lost || fail "app$i ended with $code: $line" ;;
    esac
done
