#!/bin/sh
# A program submits work that goes on for long and then calls nothing: it is not idle before that work has ended. Then
# it is, without calling anything.
. "$(dirname "$0")/lib.sh"

# queries of APP (its number in the daemon): how often it was asked whether its work is over.
queries() {
    grep -c "app $1 looks idle" "$dir/daemon.out"
}

is_in_set_and_asked() {
    app_has "$(pid_of ahead)" '"state":"running"' && [ "$(queries 0)" -ge 1 ]
}

# The other program has waited for 20 times --idle since the first one could have been taken for idle.
has_waited() {
    take_status
    is_in_set_and_asked || fail "the program with work in flight was taken for idle"
    app_has "$(pid_of other)" '"state":"waiting"' &&
        awk -v s="$(app_number "$(pid_of other)" wait_s)" 'BEGIN { exit !(s >= 1) }'
}

expect_no_busy() {
    take_status
    [ "$(json_after totals drain_busy "$dir/status.json")" = 0 ] || fail "a drain was given up"
}

has_submitted() {
    [ -f "$dir/ahead.submitted" ] || has_ended ahead
}

submit() {
    rm -f "$dir"/ahead.submitted "$dir"/ahead.release "$dir"/ahead.end
    app ahead linked --mode ahead --bytes 96M --signal "$dir/ahead" --seed 1 "$@"
    within "$patience" has_submitted && [ -f "$dir/ahead.submitted" ] || fail "nothing was submitted"
    before=$(queries 0) # on a slow machine it was idle for a moment before it submitted
}

begin() {
    submit "$@"
    app other linked --bytes 96M --iterations 4 --seed 2
}

# A turn is longer than the test: only idleness ends it.
for context in "" --own-context; do
    start_daemon --slice 600s --log-level debug
    begin $context
    waits() {
        is_up && app_has "$(pid_of other)" '"state":"waiting"' && is_in_set_and_asked
    }
    within "$patience" waits || fail "the other one does not wait, or the first one is never asked"
    idle_before=$(app_number "$(pid_of ahead)" idle_s)
    within "$patience" has_waited || fail "the other one does not wait for long enough"
    ran=$(app_number "$(pid_of ahead)" run_s) waited=$(app_number "$(pid_of other)" wait_s)
    say "in flight: run_s=$ran, the other waited_s=$waited, asked $(queries 0) times"
    # All the time that the other one waited is time that this one ran.
    awk -v r="$ran" -v w="$waited" 'BEGIN { exit !(r >= w) }' || fail "it ran for $ran s while another waited $waited s"
    [ "$(app_number "$(pid_of ahead)" switches)" = 0 ] || fail "its gate was closed"
    [ "$(app_number "$(pid_of ahead)" idle_s)" = "$idle_before" ] || fail "some of its time was taken for idle"
    # It is asked once: the answer comes when there is one.
    [ "$(($(queries 0) - before))" -le 1 ] || fail "it was asked $(($(queries 0) - before)) times"

    touch "$dir/ahead.release"
    expect_pass other
    ! has_ended ahead || fail "the first program ended by itself"
    grep -q 'app 0 is idle (query' "$dir/daemon.out" || fail "the end of its work was not noticed"
    touch "$dir/ahead.end"
    expect_pass ahead
    expect_no_busy
    expect_empty
    stop_daemon
done

# The turn ends while the answer is outstanding: without parking the CLOSE waits for the work, and for nothing else. A third program,
# which has nothing to do, is there so that the first one is asked before the other one comes.
export SIMCUDA_NO=channels
start_daemon --slice 100ms --log-level debug
app guest linked --bytes 8M --iterations 4 --seed 3 --go "$dir/guest.go"
await_ready guest
submit
is_asked() {
    [ "$(queries 1)" -ge 1 ]
}
within "$patience" is_asked || fail "it is not asked"
app other linked --bytes 96M --iterations 4 --seed 2
drains() {
    is_up && app_has "$(pid_of ahead)" '"state":"draining"'
}
within "$patience" drains || fail "its turn does not end"
touch "$dir/ahead.release"
expect_pass other
touch "$dir/ahead.end" "$dir/guest.go"
expect_pass ahead guest
expect_no_busy
expect_empty
stop_daemon
unset SIMCUDA_NO

# What the driver refuses once is asked again; a driver that knows no event of a context (801) is synchronized.
for fault in cuEventCreate:1=2 cuCtxRecordEvent:1=999 cuEventQuery:1=999 cuCtxRecordEvent:1+=801; do
    start_daemon --slice 600s --log-level debug
    export SIMCUDA_FAIL="$fault"
    begin
    unset SIMCUDA_FAIL
    touch "$dir/ahead.release"
    expect_pass other
    say "$fault: asked $(queries 0) times"
    case $fault in
    *+*) ;;
    *) [ "$(queries 0)" -ge 2 ] || fail "$fault: asked $(queries 0) times" ;;
    esac
    touch "$dir/ahead.end"
    expect_pass ahead
    expect_no_busy
    expect_empty
    stop_daemon
done

# What it always refuses leaves the program busy: it is asked less and less often, and yields when its turn is over.
start_daemon --slice 1s --log-level debug
export SIMCUDA_FAIL=cuCtxRecordEvent:1+=999
begin
unset SIMCUDA_FAIL
touch "$dir/ahead.release"
expect_pass other
! grep -q 'app 0 is idle (query' "$dir/daemon.out" || fail "it was taken for idle while it ran"
take_status
ran=$(app_number "$(pid_of ahead)" run_s)
awk -v q="$(queries 0)" -v r="$ran" 'BEGIN { exit !(q <= 20 + r) }' ||
    fail "it was asked $(queries 0) times in $ran s" # after 50 ms, 100, 200, 400, 800, then each second
touch "$dir/ahead.end"
expect_pass ahead
expect_empty
stop_daemon

# A program that is alone is asked too: what it does while nobody waits says what it is when somebody does.
start_default --log-level debug
submit
touch "$dir/ahead.release"
has_idled() {
    is_up && awk -v s="$(app_number "$(pid_of ahead)" idle_s)" 'BEGIN { exit !(s >= 1) }'
}
within "$patience" has_idled || fail "it is not taken for idle"
touch "$dir/ahead.end"
expect_pass ahead
[ "$(queries 0)" -ge 1 ] || fail "it was never asked"
expect_empty
stop_daemon
