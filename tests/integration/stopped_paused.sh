#!/bin/sh
# A program that is stopped while it is paused, with some of its memory still on the GPU, keeps that memory and nothing
# else: another one that needs room gets it from the others, and when the stopped one goes on nothing of it is lost.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "smaller programs have chunks of other sizes, and what the stopped one imported is too much then"

# Other got the room beside still, and what that lacked of still's.
is_paused() {
    is_up && still_bytes=$(app_number "$(pid_of still)" resident_bytes) && [ "${still_bytes:-0}" -gt 0 ] &&
        [ "$still_bytes" -lt "$(app_number "$(pid_of still)" total_bytes)" ]
}

export SIMCUDA_NO=channels # on a busy machine one that is quiet could be parked, and would want its turn

# round SECONDS N: it is stopped so long after it was paused; those that come later ask for their memory in N pieces,
# the first of which may seem to fit beside other.
round() {
    start_daemon --slice 300ms
    rm -f "$dir"/go.*
    app still linked --bytes 96M --iterations 2 --seed 1 --go "$dir/go.still"
    await_ready still
    within "$patience" has_state still idle # before other comes: else it may be given its turn once more
    app other linked --bytes 96M --iterations 2 --seed 2 --go "$dir/go.other"
    await_ready other
    within "$patience" is_paused || fail "still is not paused with some of its memory on the GPU"
    sleep "$1"
    stop still
    is_paused || fail "still has $still_bytes bytes on the GPU: none or all"
    say "still is stopped with $still_bytes bytes on the GPU"

    # What still leaves is not room enough for both: other's memory goes, and comes back.
    app late linked --bytes 96M --allocs "$2" --iterations 2 --seed 3
    await late
    expect_pass late
    touch "$dir/go.other"
    app later linked --bytes 96M --allocs "$2" --iterations 2 --seconds 1 --seed 4
    await other
    await later
    expect_pass other later
    ! has_ended still || fail "still ended though it was stopped"
    kill -CONT "$(pid_of still)"
    touch "$dir/go.still"
    expect_pass still
    expect_empty
    stop_daemon
}

round 1 1
round 1 3
