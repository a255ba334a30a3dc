#!/bin/sh
# A program is stopped by SIGSTOP, wherever that finds it: it keeps what it has on the GPU, and nothing else, and goes on
# afterwards.
. "$(dirname "$0")/lib.sh"

# A program that takes turns is stopped and goes on: it keeps its memory, and nobody hangs for good.
part "in turns"
start_daemon
app still linked --bytes 96M --iterations 2 --seed 1 --until "$dir/enough"
app other linked --bytes 96M --iterations 2 --seed 2 --until "$dir/enough"
await_ready still
await_ready other
has_turn() {
    is_up && [ "$(app_number "$(pid_of still)" switches)" -gt "$before" ]
}
for round in 1 2; do
    stop still
    within "$patience" has_state still stopped || fail "nobody knows that it is stopped"
    sleep 1
    check_daemon
    kill -CONT "$(pid_of still)"
    before=$(app_number "$(pid_of still)" switches)
    within "$patience" has_turn || fail "it does not go on"
done
touch "$dir/enough"
expect_pass still other
expect_empty
stop_daemon

# A program that is stopped while it waits for its turn: the others go on without it, and it goes on when continued.
part "while it waits"
start_daemon --slice 1s
app one linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
await_ready one
app two linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
await_ready two

# Between a look at the status and the signal the turn may pass, and one that is stopped in its turn keeps the GPU.
# So what counts is a look after the stop: two waits and cannot move on, and one runs with all of its memory.
waits() {
    is_up && app_has "$(pid_of one)" '"state":"running"' && app_has "$(pid_of two)" '"state":"waiting"'
}
is_stopped_waiting() {
    waits || return 1
    stop two
    ! waits || return 0
    kill -CONT "$(pid_of two)"
    return 1
}
tries=0
until is_stopped_waiting; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || fail "two is never stopped while it waits"
    sleep 0.05
done
is_told() {
    is_up && app_has "$(pid_of two)" '"state":"stopped"'
}
within "$patience" is_told || fail "status does not say that two is stopped"
touch "$dir/enough"
await one
take_status
! app_has "$(pid_of two)" '"state":"running"' || fail "two had a turn although it was stopped"
kill -CONT "$(pid_of two)"
expect_pass one two
expect_empty
stop_daemon

# Programs in turn, of which one is stopped as soon as it has drained: it is told to unmap memory, and does not. It keeps that
# memory, and nobody waits for it: all others go on having turns.
part "as it drains"
command -v python3 > /dev/null 2>&1 || skip "no python3"
# All that is swapped out, and 64 MiB: what an eviction of the stopped one has set aside there is what the others need.
start_daemon --slice 100ms --log-level debug --pinned 160M
for i in 1 2 3 4; do
    app "app$i" linked --bytes 64M --allocs "$((32 / shrink))" --iterations 1 --seed "$i" --until "$dir/enough"
done
for i in 1 2 3 4; do await_ready "app$i"; done

# Stop the next one that drains, within a millisecond; its pid.
stop_who_drains() {
    python3 -B -c '
import os, re, signal, sys, time
log = open(sys.argv[1])
log.seek(0, os.SEEK_END)
until, line = time.monotonic() + float(sys.argv[2]), ""
while time.monotonic() < until:
    line += log.readline()
    if not line.endswith("\n"):
        time.sleep(0.0001)
        continue
    drained = re.search(r"\(pid (\d+)\): draining -> paused", line)
    if drained:
        os.kill(int(drained.group(1)), signal.SIGSTOP)
        print(drained.group(1))
        sys.exit(0)
    line = ""
sys.exit(1)' "$dir/daemon.out" "$patience"
}
ms_of() {
    app_number "$(pid_of "$1")" run_s | awk '{ printf "%d", $1 * 1000 }'
}
# Each of the others ran for three turns more than when it was stopped: so it had another than the one that it had then.
have_turns() {
    is_up || return 1
    for i in 1 2 3 4; do
        [ "$(pid_of "app$i")" = "$stopped" ] || [ "$(ms_of "app$i")" -ge "$(($(cat "$dir/app$i.ms") + 300))" ] || return 1
    done
}

for round in 1 2 3 4 5; do
    stopped=$(stop_who_drains) || fail "nobody drains any more"
    take_status
    for i in 1 2 3 4; do ms_of "app$i" > "$dir/app$i.ms"; done
    within "$patience" have_turns || fail "not everybody has turns while process $stopped is stopped"
    kill -CONT "$stopped"
done
touch "$dir/enough"
expect_pass app1 app2 app3 app4
expect_empty
stop_daemon

need_size

# A stopped program can still reach frames that it used once, and others after it: they end only when it goes on. They are not
# given up meanwhile: a program of the same user that fits beside what the stopped one keeps runs in them. One that needs other
# sizes waits, and the status says how much the stopped one keeps.
part frames
# Of five frames of 32 MiB each of the two uses three.
start_daemon
for seed in 1 2; do
    app "turns$seed" linked --bytes 96M --allocs 3 --iterations 3 --seed "$seed" --until "$dir/enough"
done
within "$patience" has_switched 12 || fail "they do not take turns"
kill -STOP "$(pid_of turns1)"
within "$patience" has_state turns1 stopped || fail "nobody knows that it is stopped"
kill -KILL "$(pid_of turns2)"
alone() { is_up && [ "$(apps)" = 1 ]; }
within "$patience" alone || fail "the other one is still there"
"$ctl" trim > "$dir/trim" || fail "nothing can be trimmed"
app later linked --bytes 64M --allocs 2 --iterations 3 --seed 3
within "$patience" has_ended later || fail "it does not run: $(app_of "$(pid_of later)")"
expect_pass later
app small linked --bytes 128M --allocs 64 --iterations 3 --seed 4 # does not fit beside two frames; it keeps two to five
is_told() { "$ctl" status | grep -Eq "needs .* MiB on the GPU: pid $(pid_of turns1) is stopped and keeps (64|96|128|160) MiB"; }
within "$patience" is_told || fail "the status does not say who keeps the GPU: $("$ctl" status)"
kill -CONT "$(pid_of turns1)"
touch "$dir/enough"
expect_pass small turns1
expect_empty
stop_daemon

# Programs in turn, the next of which has the room beside the one that runs. One that is stopped while it waits, with nothing on
# the GPU, is given none of it ahead of its turn: it would keep that, and whoever needs it would never run.
part "nothing ahead of its turn"
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

# A program that is stopped while it is paused, with some of its memory still on the GPU, keeps that memory and nothing else:
# another one that needs room gets it from the others, and when the stopped one goes on nothing of it is lost.
part paused
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
    app later linked --bytes 96M --allocs "$2" --iterations 2 --seed 4
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
unset SIMCUDA_NO
