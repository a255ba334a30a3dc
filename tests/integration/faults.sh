#!/bin/sh
# Driver calls are made to fail one by one, in the daemon or in a program. Nothing may crash, hang or give a wrong result: a program
# passes or is told of an error; the daemon goes on, or does not start and says why; a program that comes afterwards is served. One
# whose driver refuses to unmap or to release memory cannot share any more: it gets error 46, or 700 if it was parked. Each call fails
# once; with ALL in the environment (integration_faults_all, label long) at further places, too.
. "$(dirname "$0")/lib.sh"
without_keeper

# all FAULT...: with ALL alone
all() {
    [ -z "${ALL:-}" ] || echo "$*"
}

# faulty FAULT ARGUMENT...: the program one, whose driver refuses that.
faulty() {
    fault=$1
    shift
    export SIMCUDA_FAIL="$fault"
    app one linked "$@"
    unset SIMCUDA_FAIL
}

# ends NAME LETS_GO [ERROR]...: it ends well, or told that memory is out or of ERROR. If LETS_GO, a pattern, is the fault, its driver
# refused to let memory go: then it may be lost.
ends() {
    ends_name=$1
    ends_lost=$2
    shift 2
    await "$ends_name"
    say "$fault: $ends_name: ${line##*way=linked }"
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*": error 2 CUDA_ERROR_OUT_OF_MEMORY") return ;;
    esac
    for ends_error; do
        case $code,$line in
        "3,FAIL "*" mismatches=0 "*": error $ends_error "*) return ;;
        esac
    done
    # shellcheck disable=SC2254 # a pattern
    case $fault in
    $ends_lost) ! is_lost || return 0 ;;
    esac
    fail "$fault: $ends_name ended with $code: $line"
}

# --- in the daemon: each has one of its own ---

for fault in cuMemCreate:3 cuMemCreate:4=999 cuMemExportToShareableHandle:3=999 cuMemAddressReserve:1 cuMemMap:4 cuMemSetAccess:4 \
    cuMemUnmap:1 cuMemRelease:1 cuStreamCreate:1 cuEventCreate:1 cuMemcpyAsync:6 cuEventRecord:2 cuStreamWaitEvent:1 \
    cuEventSynchronize:2 $(all cuMemCreate:1 cuMemExportToShareableHandle:1 cuMemAddressReserve:2 cuMemMap:1 cuMemSetAccess:1 \
        cuMemcpyAsync:1); do
    part "in the daemon"
    export SIMCUDA_FAIL="$fault"
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 64M --pinned 128M --slice 30ms --idle 50ms
    within "$patience" daemon_is_up_or_dead || fail "$fault: it neither starts nor ends"
    unset SIMCUDA_FAIL
    if has_ended daemon; then
        [ "$(cat "$dir/daemon.code")" = 1 ] && grep -q 'cannot start: ' "$dir/daemon.out" ||
            fail "$fault: it ended with $(cat "$dir/daemon.code")"
        say "$fault: $(grep -o 'cannot start: .*' "$dir/daemon.out")"
        continue
    fi
    app one linked --bytes 36M --allocs 2 --iterations 8 --seed 1
    app two linked --bytes 36M --allocs 2 --iterations 8 --seed 2
    ends one ''
    ends two ''
    check_daemon
    app three linked --bytes 36M --allocs 2 --iterations 2 --seed 3
    expect_pass three
    expect_empty
    stop_daemon
done

# --- in a program, beside another one ---

start_daemon --gpu-budget 64M --pinned 128M --slice 30ms
for call in cuMemAddressReserve:2 cuMemImportFromShareableHandle:1 cuMemImportFromShareableHandle:9 cuMemMap:1 cuMemMap:5 \
    cuMemSetAccess:3 cuMemUnmap:1 cuMemUnmap:2 cuMemRelease:1 cuMemAddressFree:1 cuMemAlloc:1 cuCtxSynchronize:2=2 \
    $(all cuMemAddressReserve:1 cuMemImportFromShareableHandle:2 cuMemMap:2 cuMemSetAccess:1 cuCtxSynchronize:1=2 \
        cuCtxSynchronize:3=2); do
    part "in a program"
    faulty $call --bytes 36M --allocs 2 --iterations 8 --seed 1
    app two linked --bytes 36M --allocs 2 --iterations 8 --seed 2
    ends one 'cuMem[UR]*:*'
    expect_pass two
    expect_empty
done

# --- in one that allocates and frees in streams ---

for call in cuEventCreate:1 cuEventRecord:9 cuEventQuery:1 cuEventQuery:3+ cuStreamGetCtx:1 cuStreamGetCtx:7 \
    cuStreamGetId:1 cuDeviceGetMemPool:3+ cuDeviceGetDefaultMemPool:1 cuMemPoolGetAttribute:1+ cuMemPoolTrimTo:1 \
    cuMemPoolDestroy:1 cuMemAddressReserve:2+; do
    part "in a program with pools"
    faulty $call --mode async --threads 2 --bytes 16M --iterations 6 --seed 1
    ends one '' 999
    expect_empty
done

# --- in one that manages virtual memory: of its own calls, of what the daemon wants mapped, of what is done later for it ---

for call in cuMemMap:30 cuMemSetAccess:33 cuMemUnmap:12 cuMemRelease:4 cuMemAddressReserve:4 cuMemImportFromShareableHandle:3 \
    $(all cuMemMap:1 cuMemSetAccess:2 cuMemUnmap:1); do
    part "in a program with virtual memory"
    faulty $call --mode vmm --bytes 36M --allocs 2 --iterations 8 --seed 1
    app two linked --bytes 36M --allocs 2 --iterations 8 --seed 2
    expect_pass two
    await one
    case $code,$line,$fault in
    "1,FAIL "*" mismatches=0 "*": 2, expected "*) say "$fault: ${line##*way=linked}" ;; # a wrong call got this error
    # Its own work was under way on memory of which the driver unmapped a part and refused the rest, or it maps memory there itself.
    "3,FAIL "*" mismatches=0 "*": error 700 CUDA_ERROR_ILLEGAL_ADDRESS,cuMemUnmap:12" | \
        "3,FAIL "*" mismatches=0 "*" cuMemSetAccess: error 1 CUDA_ERROR_INVALID_VALUE,cuMemUnmap:12") say "$fault: ${line##*way=linked}" ;;
    *) ends one '*' ;;
    esac
    check_daemon
    expect_empty
done

# --- in one that exports a handle: for it there is new memory, to which the old one is copied ---

for call in cuMemCreate:1 cuMemAddressReserve:7 cuMemcpyDtoD:1; do
    part "in a program that exports"
    faulty $call --mode sharers --threads 1 --bytes 32M --iterations 10 --seed 9
    ends one '' 999
    expect_empty
done

part afterwards
app after linked --mode async --bytes 32M --iterations 10
app vmm linked --mode vmm --bytes 32M --iterations 4
expect_pass after vmm
expect_empty
stop_daemon
