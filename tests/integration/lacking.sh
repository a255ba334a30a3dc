#!/bin/sh
# A driver that lacks some entry points, and devices that cannot do what gpumux is built on: what can go on without
# goes on, the status and the log say what is off and what it costs, and programs run in any case.
. "$(dirname "$0")/lib.sh"

# off NAME: what the status says that NAME does without, in one line.
off() {
    is_up || return 1
    app_of "$(pid_of "$1")" | grep -o '"features_off":\[[^]]*\]'
}

# An app waits for a file here, so that the status can be taken while it is there.
lacks() {
    lacks_name=$1 lacks_what=$2
    shift 2
    rm -f "$dir/go"
    if [ -n "$lacks_what" ]; then
        SIMCUDA_WITHOUT=$lacks_what
        export SIMCUDA_WITHOUT
    fi
    app "$lacks_name" "$@" --bytes 96M --iterations 3 --go "$dir/go" --seed 1
    unset SIMCUDA_WITHOUT
    await_ready "$lacks_name"
}

# A program that loads the driver itself has channels if it was there before (tests/README.md).
shim=$shim:$BUILD/tests/simcuda/libcuda.so.1
start_daemon
for way in dlsym proc; do
    lacks "all-$way" "" $way
    [ "$(off "all-$way")" = '"features_off":[]' ] || fail "it does without something: $(off "all-$way")"
    lacks "old-$way" cuCtxRecordEvent,cuFuncGetParamInfo,cuKernelGetParamInfo $way
    [ "$(off "old-$way")" = '"features_off":["context-events","launch-arguments"]' ] ||
        fail "the status does not say what is off: $(off "old-$way")"
    "$ctl" status > "$dir/status.out"
    tr '\n' ' ' < "$dir/status.out" | grep -q 'without context-events: .*cuCtxRecordEvent.*keeps a core busy' ||
        fail "mux-ctl status does not say what is off, and what that costs"
    touch "$dir/go"
    expect_pass "all-$way" "old-$way"
done
expect_switches 2
for feature in context-events launch-arguments; do
    [ "$(grep -c "does without $feature, as others will here: the driver has no" "$dir/daemon.out")" -eq 1 ] ||
        fail "the log does not say once that $feature is off"
done

# A kernel that refuses membarrier: no park either, for nobody knows which threads are inside a call.
shim_with=$shim
shim=$BUILD/tests/programs/libgm_no_membarrier.so:$shim
lacks sandboxed "" linked
shim=$shim_with
[ "$(off sandboxed)" = '"features_off":["fast-gate","park"]' ] ||
    fail "the status does not say what the program in a sandbox lacks: $(off sandboxed)"
touch "$dir/go"
expect_pass sandboxed

# Without what chunks are made of the program is not managed, and runs.
GPUMUX_LOG="$dir/none.log"
export GPUMUX_LOG
for call in cuStreamIsCapturing cuDevicePrimaryCtxGetState cuThreadExchangeStreamCaptureMode; do
    SIMCUDA_WITHOUT=$call
    export SIMCUDA_WITHOUT
    app "without-$call" linked --bytes 64M --iterations 3 --seed 2
    unset SIMCUDA_WITHOUT
    expect_pass "without-$call"
done
unset GPUMUX_LOG
[ "$(grep -c 'this CUDA driver is too old' "$dir/none.log")" -eq 3 ] || fail "the programs' log does not say why"
expect_empty
stop_daemon

# No memory handles on the host: pinned memory is registered; the rest is as ever, but for --oversize host.
export SIMCUDA_NO=host-numa
start_daemon --oversize host
app one linked --bytes 96M --iterations 3 --seed 3 --until "$dir/enough"
app two proc --bytes 96M --iterations 3 --seed 4 --until "$dir/enough"
await_switches 3
expect_pass one two
expect_switches 3
grep -q 'no memory handles on the host: pinned memory is registered.*--oversize host is off' "$dir/daemon.out" ||
    fail "the log does not name the fallback and its cost"
grep -q '"pinned_is_registered":true' "$dir/status.json" || fail "the status does not say that it is registered"
"$ctl" status | grep -q 'pinned memory is registered' || fail "mux-ctl status does not say that it is registered"
export GPUMUX_OVERSIZE=host
app large linked --mode oom --bytes 96M --iterations 2 --seed 5
unset GPUMUX_OVERSIZE
expect_pass large
grep -q "(pid $(pid_of large), .*oversize=host is not possible: GPU 0 has no memory handles on the host" "$dir/daemon.out" ||
    fail "the log does not say that the program cannot be larger"
expect_empty
stop_daemon

# The same with the tiers below, which are reached through pinned memory.
rm -f "$GPUMUX_SOCKET"
start_daemon --pinned 256M --paged 512M
app one linked --bytes 96M --iterations 3 --seed 3
app two linked --bytes 96M --iterations 3 --seed 4
app three linked --bytes 96M --iterations 3 --seed 5
app four linked --bytes 96M --iterations 3 --seed 6
expect_pass one two three four
expect_empty
stop_daemon

# No handles at all, or none that cross processes: the daemon says so and does not start; programs run.
for lack in vmm fd-handles; do
    export SIMCUDA_NO=$lack
    rm -f "$GPUMUX_SOCKET"
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET"
    await daemon
    [ "$code" = 1 ] || fail "$lack: the daemon ended with $code"
    grep -q 'which gpumux needs: programs run on it as without gpumux' "$dir/daemon.out" ||
        fail "$lack: the daemon does not say why it does not start"
    app "no-$lack" linked --bytes 96M --iterations 3 --seed 6
    expect_pass "no-$lack"
done
unset SIMCUDA_NO

# A GPU that takes one process, or none: the daemon would be that one. It says so, and makes no context.
for mode in 3 2; do
    [ "$mode" = 3 ] && says='EXCLUSIVE_PROCESS, so only one process' || says='PROHIBITED, so no program'
    export SIMCUDA_COMPUTE_MODE=$mode SIMCUDA_FAIL=cuDevicePrimaryCtxRetain:1+,cuCtxCreate:1+
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET"
    await daemon
    [ "$code" = 1 ] || fail "mode $mode: the daemon ended with $code"
    grep -q "is in compute mode $says can use it: as root, run nvidia-smi -i 0 -c DEFAULT" "$dir/daemon.out" ||
        fail "mode $mode: the daemon does not say why it does not start: $(cat "$dir/daemon.out")"
done
