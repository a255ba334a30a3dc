#!/bin/sh
# Captures that nobody ends: begun by a thread that is no more, more of them than any list expects, in streams and
# contexts that are destroyed. While one is open its program is left alone and the status says why; when its stream is
# gone the program is paused as any other.
. "$(dirname "$0")/lib.sh"

# One in thread-local mode, whose thread is no more, can be ended by nobody: it holds nothing up.
start_daemon
app left linked --mode left --bytes 96M --signal "$dir/left" --seed 1
await_ready left
app other linked --bytes 96M --iterations 10 --seed 2
expect_pass other
! has_ended left || fail "it ended by itself"
touch "$dir/left.end"
expect_pass left
expect_empty
stop_daemon

is_held() {
    is_up && app_has "$(pid_of held)" '"why":"couldnotbepaused:astreamcapturestayedopen'
}

ways="linked proc"
[ "${GM_LINKED:-}" != 1 ] || ways=linked # a sanitizer is slow
for way in $ways; do
    start_daemon
    rm -f "$dir"/held.release "$dir"/held.end
    app held "$way" --mode abandon --bytes 96M --signal "$dir/held" --seed 1
    await_ready held
    app other linked --bytes 96M --iterations 10 --seed 2
    within "$patience" is_held || fail "the status does not say that a capture is open"
    ! has_ended other || fail "the other program had its turn beside a program that must not be paused"
    touch "$dir/held.release"
    # The first one goes on until it is told to end: the other one has its turns only if it can be paused.
    expect_pass other
    ! has_ended held || fail "it ended by itself"
    touch "$dir/held.end"
    expect_pass held
    expect_empty
    stop_daemon
done
