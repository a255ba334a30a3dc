#!/bin/sh
# Clients that speak the protocol and mean no good (tests/programs/hostile.c), beside programs that take turns: the
# daemon goes on, the programs lose no byte, and nothing is left of the others when they are gone.
. "$(dirname "$0")/lib.sh"
hostile=$BUILD/tests/programs/gm_hostile
seconds=${SECONDS_OF_HOSTILITY:-2}

# hostility SEED OPTION...: the daemon's options.
hostility() {
    seed=$1
    shift
    start_daemon --slice 100ms "$@"
    for i in 1 2 3; do
        spawn "bad$i" "$hostile" --seconds "$seconds" --seed "$((seed * 10 + i))"
    done
    app one linked --bytes 64M --allocs 3 --iterations 4 --seconds "$seconds" --seed 1
    app two proc --bytes 64M --allocs 3 --iterations 4 --seconds "$seconds" --seed 2
    app three dlsym --mode churn --bytes 48M --iterations 4 --seconds "$seconds" --seed 3
    for i in 1 2 3; do
        await "bad$i"
        [ "$code" = 0 ] || fail "hostile client $i: code $code: $line"
        say "hostile client $i: $line"
    done
    expect_pass one two three
    check_daemon
    expect_empty
    stop_daemon
}

hostility "${SEED:-1}"
hostility "$((${SEED:-1} + 1))" --pinned 224M --paged 512M --oversize host
