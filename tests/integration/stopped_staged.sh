#!/bin/sh
# Programs in turn, the next of which has the room beside the one that runs. One that is stopped while it waits, with
# nothing on the GPU, is given none of it ahead of its turn: it would keep that, and whoever needs it would never run.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon --slice 1200ms
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 1 --seed "$i" --until "$dir/enough"
done
all=100663296

# One of the three runs, the next one has the 64 MiB beside it, and the last, $away, has nothing and is told nothing.
find_away() {
    is_up || return 1
    away= next=
    for i in 1 2 3; do
        pid=$(pid_of "app$i")
        app_has "$pid" '"state":"waiting"' || continue
        case $(app_number "$pid" resident_bytes),$(app_number "$pid" pinned_bytes) in
        0,$all) away=app$i ;;
        67108864,33554432) next=app$i ;;
        esac
    done
    [ -n "$away" ] && [ -n "$next" ]
}
# is_stopped ROLE: $away or $next is stopped, and as it was before: so the room was not yet to be another's.
is_stopped() {
    find_away || return 1
    eval "stopped=\$$1"
    stop "$stopped"
    find_away && eval "[ \"\$$1\" = $stopped ]" && return 0
    kill -CONT "$(pid_of "$stopped")"
    return 1
}
within "$patience" is_stopped away || fail "nobody waits with nothing on the GPU"
say "$away is stopped with nothing on the GPU"

# It is asked before the room becomes its own.
is_told() {
    is_up && app_has "$(pid_of "$away")" '"state":"stopped"'
}
within "$patience" is_told || fail "status does not say that $away is stopped"

# Who needs more than that leaves has it.
app large linked --bytes 128M --allocs 4 --iterations 2 --seed 4
expect_pass large
take_status
case $(app_number "$(pid_of "$away")" pinned_bytes) in
$all) ;;
*) fail "$away was given memory while it was stopped" ;;
esac
kill -CONT "$(pid_of "$away")"

# The next one keeps what it has; whoever needs more than it leaves is told so, and runs when it goes on.
within "$patience" is_stopped next || fail "nobody waits with the room beside the one that runs"
say "$stopped is stopped with that room"
is_told_so() {
    is_up && app_has "$(pid_of larger)" 'needs128MiBontheGPU\(,whereothersleaveroomfor[0-9]\|:pid[0-9]*isstopped\)'
}
app larger linked --bytes 128M --allocs 4 --iterations 2 --seed 5
within "$patience" is_told_so || fail "status does not say that $stopped keeps what larger needs"
kill -CONT "$(pid_of "$stopped")"
expect_pass larger
touch "$dir/enough"
expect_pass app1 app2 app3
expect_empty
stop_daemon
