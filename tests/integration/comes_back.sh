#!/bin/sh
# The daemon dies, and somebody still has the memory of its programs, as gpumux-keeper does: this test holds the lifeline.
# What runs goes on, and who waits waits; an allocation waits for 30 s, and is refused then. When another
# daemon comes that did not take the programs over, or nobody has their memory any more, they end as without all that: what
# is on the GPU runs on, and what was swapped out is lost.
. "$(dirname "$0")/lib.sh"
without_keeper

says() {
    grep -q "$2" "$dir/$1.log"
}

# The pipe that a program and the daemon have in common, from NAME's side: a process in the place of gpumux-keeper
# opens its writing end. Only the daemon's own user can.
hold_lifeline() {
    daemon_pipes=$(readlink "/proc/$(pid_of daemon)/fd/"* 2> /dev/null | grep '^pipe:')
    [ -n "$daemon_pipes" ] || skip "the daemon's files cannot be looked at"
    own_pipes=$(readlink "/proc/$$/fd/"* | grep '^pipe:') # both may have inherited those
    for file in "/proc/$(pid_of "$1")/fd/"*; do
        pipe=$(readlink "$file" | grep '^pipe:') || continue
        ! echo "$own_pipes" | grep -qF "$pipe" || continue
        echo "$daemon_pipes" | grep -qF "$pipe" || continue
        spawn keeper sh -c 'exec sleep 100000 9> "$1"' sh "$file" # nobody else has it open
        within "$patience" test -e "/proc/$(pid_of keeper)/fd/9" || fail "the lifeline cannot be opened"
        return
    done
    fail "$1 has no lifeline"
}

end_keeper() {
    kill -KILL "$(pid_of keeper)"
    await keeper
}

steps() {
    cat "$dir/$1.steps" 2> /dev/null || echo 0
}

goes_on() {
    has_ended runs || [ "$(steps runs)" -gt "$1" ]
}

# One program runs a kernel without an end, and one is parked in such a kernel, some of its memory swapped out.
begin() {
    rm -f "$dir/enough" "$dir"/*.steps "$dir"/*.log
    start_daemon
    orphan parked linked --mode endless --bytes 96M --hold 1 --signal "$dir/parked.steps" --until "$dir/enough" --seed 1
    await_ready parked
    hold_lifeline parked
    "$ctl" pause "$(pid_of parked)" > /dev/null || fail "pause failed" # so nothing changes while the daemon is killed
    orphan runs linked --mode endless --bytes 96M --hold 1 --signal "$dir/runs.steps" --until "$dir/enough" --seed 2
    await_ready runs
    is_parked() {
        take_status
        app_has "$(pid_of parked)" '"parked":true' && app_has "$(pid_of runs)" '"state":"running"'
    }
    within "$patience" is_parked || fail "it is never parked"
    kill -KILL "$(pid_of daemon)"
    await daemon
    rm -f "$GPUMUX_SOCKET"
    for app in parked runs; do
        within "$patience" says $app 'waiting for the next one' || fail "$app does not wait: $(cat "$dir/$app.log")"
    done
}

# Nothing changes while they wait.
stays() {
    before=$(steps runs)
    stands=$(steps parked)
    within "$patience" goes_on "$before" || fail "what ran does not go on"
    ! has_ended runs && ! has_ended parked || fail "a program ended"
    [ "$(steps parked)" = "$stands" ] || fail "what was parked went on without its memory"
    ! says parked 'is gone' || fail "it was given up: $(cat "$dir/parked.log")"
}

# What is on the GPU runs on, the other one has the documented error.
expect_ends() {
    for app in parked runs; do
        within "$patience" says $app 'the daemon is lost: [rs]' || fail "$app waits on: $(cat "$dir/$app.log")"
    done
    : > "$dir/enough"
    expect_pass runs
    await parked
    is_lost || fail "parked ended with $code: $line"
}

begin
stays
within "$patience" says runs 'allocations are refused until' || fail "nothing is refused"
stays
start_daemon
for app in parked runs; do
    within "$patience" says $app 'does not take this program over: app [0-9]* cannot come back: this daemon has taken over no' ||
        fail "$app is not told: $(cat "$dir/$app.log")"
done
expect_ends
end_keeper
app later linked --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

begin
stays
end_keeper
expect_ends
