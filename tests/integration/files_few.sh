#!/bin/sh
# The daemon may open few files, of which each piece of 2 to 32 MiB needs one. What they cannot back is not promised, and
# refused with that reason; programs that fit take turns, and all end.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
patience=120

# few LIMIT OPTION...: a daemon with that many files.
few() {
    few_limit=$1
    shift
    spawn daemon sh -c 'ulimit -n "$0" && exec "$@"' "$few_limit" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" \
        --gpu-budget 512M --pinned 1G --slice 100ms --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
}

for limit in 64 256; do
    few $limit
    # In pieces of 2 MiB: more than there are files for, so the program is refused before it is stuck.
    app pieces linked --bytes 240M --allocs 120 --iterations 1
    await pieces
    case $code,$line in
    3,*"OUT_OF_MEMORY") ;;
    *) fail "with $limit files: code $code: $line" ;;
    esac
    "$ctl" log --json | grep '"kind":"refused"' | grep '"why":"files"' | grep -q '"raise":"LimitNOFILE or ulimit -n of gpumuxd"' ||
        fail "with $limit files: the log does not say why: $("$ctl" log)"
    within "$patience" is_empty || fail "with $limit files: something is left"
    promised=$(($(gpu available_bytes) >> 20))
    # In large pieces: 240 MiB are nine of them.
    for i in 1 2 3 4; do
        app "app$i" linked --bytes 240M --allocs 3 --iterations 4 --seed "$i"
    done
    for i in 1 2 3 4; do
        await_ready "app$i"
    done
    expect_pass app1 app2 app3 app4
    expect_empty
    # What was promised can be had, in one piece.
    app promised linked --bytes "${promised}M" --allocs 1 --iterations 1
    expect_pass promised
    say "with $limit files: $promised MiB are promised"
    stop_daemon
done
[ "$promised" = 512 ] || fail "256 files are enough for all of the GPU"
