#!/bin/sh
# Root with one program and another user with three have about the same of the GPU's time, though root's program drops to
# the next level long before the others do; with --fair programs each program has the same. Where all fit, timeslices say so.
. "$(dirname "$0")/lib.sh"
need_stranger

# used USER-ID: the time that its programs ran, in ms.
used() {
    tr -d ' \n\t' < "$dir/status.json" | sed 's/.*"apps"://' | tr '{' '\n' | grep "\"uid\":$1," | grep -o '"run_s":[0-9.e+-]*' |
        cut -d: -f2 | awk '{sum += $1} END {printf "%d", sum * 1000}'
}

# Both together had so many ms since.
have_used() {
    is_up && [ $(($(used 0) - mine + $(used 65534) - theirs)) -ge "$1" ]
}

# work: the four programs work, and their timeslices are as the arguments say.
work() {
    rm -f "$dir/enough"
    app alone linked --bytes 12M --allocs 2 --iterations 1 --until "$dir/enough"
    await_ready alone
    for i in 1 2 3; do
        stranger_app "theirs$i" --bytes 12M --allocs 2 --iterations 1 --until "$dir/enough"
    done
    for i in 1 2 3; do await_ready "theirs$i"; done
    [ $# = 0 ] || within "$patience" slices "$@" || fail "not so: $*"
}

# pauses: how often the daemon has said that it, or a program, did not run.
pauses() {
    grep -c 'does not answer: its memory\|the daemon did not run' "$dir/daemon.out"
}

# share MS LEAST MOST OPTION...: of so much time of all, root's program has between LEAST and MOST thousandths. Who stands
# while a busy machine has no processor for it, or for the daemon, keeps its turn, and the others have more after that. So if
# there was such a pause since the programs work, the next time counts, up to the fifth.
share() {
    share_ms=$1 least=$2 most=$3
    shift 3
    start_daemon --gpu-budget 20M --slice 40ms "$@"
    work
    paused=$(pauses)
    for i in 1 2 3 4 5; do
        take_status
        mine=$(used 0) theirs=$(used 65534)
        within "$patience" have_used "$share_ms" || fail "they do not work"
        mine=$(($(used 0) - mine)) theirs=$(($(used 65534) - theirs))
        part=$((mine * 1000 / (mine + theirs)))
        say "$*: root had $mine ms, the other user $theirs ms"
        [ "$part" -lt "$least" ] || [ "$part" -gt "$most" ] || break
        [ "$(pauses)" != "$paused" ] || break
    done
    touch "$dir/enough"
    expect_pass alone theirs1 theirs2 theirs3
    stop_daemon
    [ "$part" -ge "$least" ] && [ "$part" -le "$most" ] || fail "$*: root's program had $part of 1000"
}

share 6000 430 570 # 500 by the rule; a busy machine, on which processes wait for processors, moves it by some 40
share 2500 150 350 --fair programs

start_default
work alone=6144 theirs1=2048 theirs2=2048 theirs3=2048
touch "$dir/enough"
expect_pass alone theirs1 theirs2 theirs3
stop_daemon
