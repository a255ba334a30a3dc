#!/bin/sh
# A program asks what its pointers are while it is paused and its memory is swapped out: it is answered at once, as
# for memory that never moved, in every way of reaching the driver. Natively it passes the same checks.
. "$(dirname "$0")/lib.sh"
without_keeper

is_evicted() {
    is_up && [ "$(app_number "$(pid_of "$1")" resident_bytes)" -lt "$(app_number "$(pid_of "$1")" total_bytes)" ]
}

has_asked() {
    [ -f "$dir/$1.signal.asked" ] || has_ended "$1"
}

native alone linked --mode pointers --bytes 24M --iterations 2
expect_pass alone
start_daemon --slice 200ms
for way in linked dlsym proc; do
    app "$way" "$way" --mode pointers --bytes 96M --allocs 3 --iterations 3 --seed 1 --signal "$dir/$way.signal"
    await_ready "$way"
    "$ctl" pause "$(pid_of "$way")" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
    within "$patience" has_state "$way" paused || fail "$way is not paused"
    app "other-$way" linked --bytes 120M --iterations 3 --seed 2
    within "$patience" is_evicted "$way" || fail "$way keeps all of its room"
    touch "$dir/$way.signal.ask"
    within "$patience" has_asked "$way" || fail "$way waits for an answer"
    ! has_ended "$way" || fail "$way: $(tail -n 1 "$dir/$way.out")"
    has_state "$way" paused || fail "$way was let go to be answered"
    "$ctl" resume "$(pid_of "$way")" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
    expect_pass "$way" "other-$way"
done
expect_empty

# Threads that ask on and on while it takes turns with others.
app asking linked --mode pointers --bytes 96M --allocs 3 --iterations 10 --seconds 2 --threads 3 --seed 3
app hog linked --bytes 120M --iterations 10 --seconds 2 --seed 4
expect_pass asking hog
expect_empty

# The daemon dies while the program is paused and swapped out: it still gets its answers.
app lost linked --mode pointers --bytes 96M --allocs 3 --iterations 1 --seed 1 --signal "$dir/lost.signal"
await_ready lost
"$ctl" pause "$(pid_of lost)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
app hog linked --bytes 120M --iterations 3 --seed 2
within "$patience" is_evicted lost || fail "lost keeps all of its room"
kill -KILL "$(pid_of daemon)"
await daemon
touch "$dir/lost.signal.ask"
within "$patience" has_asked lost || fail "lost waits for an answer"
[ -f "$dir/lost.signal.asked" ] || fail "lost: $(tail -n 1 "$dir/lost.out")"
