# What the fault tests share: driver calls made to fail one by one, in the daemon or in an app. Nothing may crash,
# hang or give a wrong result: an app passes or is told that memory is out; the daemon goes on, or does not start and
# says why; an app that comes afterwards is served. An app whose driver refuses to unmap or to release memory cannot
# share any more: it gets error 46, or 700 if it was parked.
. "$(dirname "$0")/lib.sh"
without_keeper

# is_refusal_to_let_go WHO,APP,CALL
is_refusal_to_let_go() {
    [ "$1" = app,one,cuMemUnmap ] || [ "$1" = app,one,cuMemRelease ]
}

# outcome WHERE APP: its end is one that may be.
outcome() {
    await "$2"
    case $code,$line in
    "0,PASS "*) say "$fault in the $1: $2: PASS" ;;
    "3,FAIL "*" mismatches=0 "*": error 2 CUDA_ERROR_OUT_OF_MEMORY")
        [ "$2" = one ] || [ "$1" = daemon ] || fail "$fault in app one: app $2: $line"
        say "$fault in the $1: $2: ${line##*way=linked }"
        ;;
    *)
        is_lost && is_refusal_to_let_go "$1,$2,${fault%%:*}" ||
            fail "$fault in the $1: app $2 ended with $code: $line"
        say "$fault in the $1: $2: ${line##*way=linked }"
        ;;
    esac
}

# one_round WHERE CALL N: the N-th CALL in WHERE (daemon or app) fails; N=CODE: with this CUresult.
one_round() {
    fault="$2:$3"
    rm -f "$GPUMUX_SOCKET"
    if [ "$1" = daemon ]; then
        export SIMCUDA_FAIL="$fault"
        spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 64M --pinned 128M \
            --slice 30ms --idle 50ms
        within "$patience" daemon_is_up_or_dead || fail "$fault in the daemon: it neither starts nor ends"
        unset SIMCUDA_FAIL
        if has_ended daemon; then
            [ "$(cat "$dir/daemon.code")" = 1 ] && grep -q 'cannot start: ' "$dir/daemon.out" ||
                fail "$fault in the daemon: it ended with $(cat "$dir/daemon.code")"
            say "$fault in the daemon: $(grep -o 'cannot start: .*' "$dir/daemon.out")"
            return
        fi
    else
        start_daemon --gpu-budget 64M --pinned 128M --slice 30ms
        export SIMCUDA_FAIL="$fault"
    fi
    app one linked --bytes 36M --allocs 2 --iterations 12 --seed 1
    unset SIMCUDA_FAIL
    app two linked --bytes 36M --allocs 2 --iterations 12 --seed 2
    outcome "$1" one
    outcome "$1" two
    check_daemon
    app three linked --bytes 36M --allocs 2 --iterations 2 --seed 3
    expect_pass three
    expect_empty
    stop_daemon
}
