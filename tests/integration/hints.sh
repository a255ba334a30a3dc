#!/bin/sh
# With --latency-mode=hint a program's hint stops the best-effort programs beside it inside their kernels for as long as
# it says, and they go on afterwards: also when the daemon is stopped or killed meanwhile, and when they must yield their
# turn meanwhile. They keep their share of the time whatever is hinted, and nonsense is counted and forgotten. A program whose
# requests come at a steady rate has its hints given by the shim.
. "$(dirname "$0")/lib.sh"
without_keeper

steps() {
    cat "$dir/$1.steps" 2> /dev/null || echo 0
}

endless() {
    endless_name=$1
    shift
    app "$endless_name" linked --mode endless --hold 1 --signal "$dir/$endless_name.steps" --until "$dir/enough" "$@"
}

is_beyond() {
    ! has_ended "$1" || return 0
    [ "$(steps "$1")" -gt "$2" ]
}

goes_on() {
    goes_on_from=$(steps "$1")
    within "$patience" is_beyond "$1" "$((goes_on_from + ${2:-1}))" || fail "$1 does not go on"
    ! has_ended "$1" || fail "$1 has ended"
}

# number_of NAME KEY, from the status now
number_of() {
    take_status
    app_number "$(pid_of "$1")" "$2"
}

has_more() {
    [ "$(number_of "$1" "$2")" -gt "$3" ]
}

# steps_in_a_second NAME
steps_in_a_second() {
    steps_before=$(steps "$1")
    sleep 1
    echo $(($(steps "$1") - steps_before))
}

# expect_held NAME: it stands still for much of the time that h, which runs, announces. On a busy machine one second is
# not like the next: once more. One that was stopped has no turn before its next call, so h is started anew.
expect_held() {
    for try in 1 2 3 4 5; do
        held=$(steps_in_a_second "$1")
        kill -KILL "$(pid_of h)"
        await h
        free=$(steps_in_a_second "$1")
        hinter h
        within "$patience" has_more h hints 0 || fail "h, started anew, announces nothing"
        say "$1: $free steps a second, and $held held"
        [ "$held" -ge $((free * 6 / 10)) ] || return 0
    done
    fail "$1 does not stand still while it is held"
}

# hinter NAME: hints of 50 ms, for ever
hinter() {
    GPUMUX_CLASS=latency app "$1" linked --mode expect --hold 50 --pause 20 --until "$dir/enough"
    await_ready "$1"
}

start_default --latency-mode hint
endless a --bytes 16M --seed 1
within "$patience" is_beyond a 0 || fail "a does not begin"
hinter h
within "$patience" has_more a holds 10 || fail "a is not held"
expect_held a
goes_on a
within "$patience" has_more h hints 10 || fail "the hints are not counted"

# One that has no memory of the daemon is stopped as well.
endless small --bytes 512K --seed 7 --until "$dir/enough.small"
within "$patience" has_more small holds 10 || fail "small is not held"
expect_held small
: > "$dir/enough.small"
expect_pass small

# Who is idle has nothing that could stand still. It begins with some work.
app idle linked --mode cycle --bytes 8M --hold 600000
await_ready idle
is_left_alone() {
    held_a=$(number_of a holds)
    held_idle=$(number_of idle holds)
    sleep .5
    [ "$(number_of a holds)" -ge $((held_a + 5)) ] && [ "$(number_of idle holds)" = "$held_idle" ]
}
within "$patience" is_left_alone || fail "an idle program is held"
kill "$(pid_of idle)"
await idle

# Nor need it say anything, if its requests come at a steady rate.
GPUMUX_CLASS=latency app steady linked --mode steady --pause 25 --until "$dir/enough.steady"
within "$patience" has_more steady hints 3 || fail "the rhythm of its requests is not noticed"
: > "$dir/enough.steady"
expect_pass steady

# Who is best-effort, or paused, has nothing to say.
app batch linked --mode expect --hold 50 --pause 20 --iterations 20
expect_pass batch
"$ctl" pause "$(pid_of h)" > /dev/null || fail "mux-ctl pause"
within "$patience" has_state h paused || fail "h is not paused"
ignored=$(number_of h hints_ignored)
within "$patience" has_more h hints_ignored $((ignored + 5)) || fail "hints of a paused program are not ignored"
goes_on a 1000
"$ctl" resume "$(pid_of h)" > /dev/null || fail "mux-ctl resume"

# Exporting memory copies it on the GPU, in the thread that ends holds.
app sharers linked --mode sharers --threads 2 --bytes 48M --iterations 20 --seed 5
expect_pass sharers

# Nonsense counts as nothing, and harms nobody.
GPUMUX_CLASS=latency app mad linked --mode nonsense --pause 100 --until "$dir/enough"
within "$patience" has_more mad hints_ignored 5000 || fail "nonsense is not counted"
goes_on a

# The daemon stands still: so does nobody else, and nobody waits for it.
stop daemon
goes_on a 1000
goes_on a 1000
kill -CONT "$(pid_of daemon)"
within "$patience" has_more a holds "$(number_of a holds)" || fail "a is not held any more"
# It is killed.
kill -KILL "$(pid_of daemon)"
await daemon
goes_on a 1000
goes_on a 1000
: > "$dir/enough"
expect_pass a h mad

# Those that are held take turns.
rm -f "$dir/enough" "$dir"/*.steps
start_daemon --latency-mode hint
hinter h
endless a --bytes 96M --seed 1
endless b --bytes 96M --seed 2
for turn in 1 2 3 4; do
    goes_on a
    goes_on b
done
within "$patience" has_switched 6 || fail "only $(gpu switches) switches"
[ "$(number_of a holds)" -gt 0 ] && [ "$(number_of b holds)" -gt 0 ] || fail "they were not held"
[ "$(number_of a parks)" -gt 0 ] && [ "$(number_of b parks)" -gt 0 ] || fail "they were not parked"
: > "$dir/enough"
expect_pass a b h
take_status
[ "$(json_after totals drain_busy "$dir/status.json")" = 0 ] || fail "a drain was given up"
stop_daemon

# Not asked for: nobody is held.
rm -f "$dir/enough" "$dir"/*.steps
start_default
hinter h
endless a --bytes 16M --seed 1
within "$patience" has_more h hints_ignored 10 || fail "hints are not counted"
[ "$(number_of a holds)" = 0 ] || fail "a was held without --latency-mode hint"
: > "$dir/enough"
expect_pass a h
stop_daemon
