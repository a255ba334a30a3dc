#!/bin/sh
# A program that stands still in its turn (stopped by a signal, held by a debugger, frozen with its control group, also
# by a group around that, or only the thread of it that answers the daemon) keeps its memory on the GPU, and nothing else: its group is paused with it, others run beside
# what it keeps and are told who keeps it and what to do, and it is charged for nothing. When it goes on, all go on.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
start_daemon --slice 200ms

run_of() {
    app_number "$(pid_of "$1")" run_s
}
# has_run NAME SINCE: for a fifth of a second more.
has_run() {
    is_up && awk -v now="$(run_of "$1")" -v then="$2" 'BEGIN { exit !(now > then + 0.2) }'
}

# --- ways to stand still; `halt a` and `let a go on` ---

v1=/sys/fs/cgroup/freezer/gm-$$ v2=
for at in /sys/fs/cgroup/unified /sys/fs/cgroup; do
    [ -z "$v2" ] && [ -f "$at/cgroup.procs" ] && [ ! -f "$at/tasks" ] && v2=$at/gm-$$
done
groups_end() {
    [ -f "$dir/a.pid" ] && kill -KILL "$(pid_of a)" 2> /dev/null
    [ -d "$v1" ] && { echo THAWED > "$v1/freezer.state"; rmdir_soon "$v1/in" "$v1"; }
    [ -n "$v2" ] && [ -d "$v2" ] && { echo 0 > "$v2/cgroup.freeze"; rmdir_soon "$v2/in" "$v2"; }
}
rmdir_soon() {
    for folder; do
        tries=0
        until rmdir "$folder" 2> /dev/null || [ $tries -gt 200 ]; do
            tries=$((tries + 1))
            sleep 0.02
        done
    done
}
trap 'groups_end; cleanup' EXIT

halt_signal() {
    kill -STOP "$(pid_of a)"
}
go_on_signal() {
    kill -CONT "$(pid_of a)"
}
# trace THREADS: hold those threads of a whose names begin so.
trace() {
    rm -f "$dir/detach" "$dir/tracer.out"
    spawn tracer python3 -B -c '
import ctypes, os, sys, time
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
tasks = set()
def there():
    return {task for task in os.listdir(f"/proc/{pid}/task") if open(f"/proc/{pid}/task/{task}/comm").read().startswith(sys.argv[3])}
while tasks != there():
    for task in sorted(there() - tasks, key=int):
        if libc.ptrace(16, int(task), None, None) != 0: # PTRACE_ATTACH
            sys.exit("cannot trace: " + os.strerror(ctypes.get_errno()))
        os.waitpid(int(task), 0x40000000) # __WALL
        tasks.add(task)
print("traced", flush=True)
while os.getppid() != 1 and not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
for task in tasks:
    libc.ptrace(17, int(task), None, None) # PTRACE_DETACH
' "$(pid_of a)" "$dir/detach" "$1"
    within "$patience" tracer_is_there
    grep -q '^traced' "$dir/tracer.out"
}
tracer_is_there() {
    has_ended tracer || grep -q '^traced' "$dir/tracer.out"
}
halt_traced() {
    trace ""
}
go_on_traced() {
    touch "$dir/detach"
    await tracer
}
halt_deaf() {
    trace gpumux-link
}
go_on_deaf() {
    go_on_traced
}
halt_frozen_v1() {
    mkdir "$v1" "$v1/in" 2> /dev/null && pid_of a 2> /dev/null > "$v1/in/cgroup.procs" &&
        echo FROZEN 2> /dev/null > "$v1/freezer.state"
}
go_on_frozen_v1() {
    echo THAWED > "$v1/freezer.state"
}
halt_frozen_v2() {
    [ -n "$v2" ] && mkdir "$v2" "$v2/in" 2> /dev/null && pid_of a 2> /dev/null > "$v2/in/cgroup.procs" &&
        echo 1 2> /dev/null > "$v2/cgroup.freeze"
}
go_on_frozen_v2() {
    echo 0 > "$v2/cgroup.freeze"
}

# --- a and b are one group, and run or wait together; c is alone; all three do not fit ---

GPUMUX_GROUP=pair
export GPUMUX_GROUP
app a linked --bytes 48M --iterations 3 --seed 1 --until "$dir/enough"
app b linked --bytes 48M --iterations 3 --seed 2 --until "$dir/enough"
unset GPUMUX_GROUP
app c linked --bytes 96M --iterations 3 --seed 3 --until "$dir/enough"
for i in a b c; do await_ready $i; done

runs() {
    is_up && app_has "$(pid_of "$1")" '"state":"running"'
}
set_paused() { # pause|resume NAME
    "$ctl" "$1" "$(pid_of "$2")" > "$dir/said" 2>&1 || fail "$1 $2: $(cat "$dir/said")"
}
remedy_signal="isstopped.*:kill-CONT" remedy_traced="isheldbyadebugger.*:letitcontinuethere"
remedy_frozen_v1="isfrozen.*:thawitscontrolgroup" remedy_frozen_v2=$remedy_frozen_v1
remedy_deaf="doesnotanswer.*:ifitstaysso,endit"
for way in signal traced deaf frozen_v1 frozen_v2; do
    set_paused pause c
    within "$patience" runs a || fail "a has no turn: $(app_of "$(pid_of a)")"
    if ! "halt_$way"; then
        say "$way: not possible here"
        set_paused resume c
        continue
    fi
    set_paused resume c
    within "$patience" has_state a stopped || fail "$way: a is not stopped: $(app_of "$(pid_of a)")"
    eval "remedy=\$remedy_$way"
    app_has "$(pid_of a)" "\"why\":\"pid$(pid_of a)$remedy" || fail "$way: a: $(app_of "$(pid_of a)")"
    app_has "$(pid_of b)" "\"state\":\"\(waiting\|draining\)\".*pid$(pid_of a)$remedy" || app_has "$(pid_of b)" '"state":"draining"' ||
        fail "$way: b: $(app_of "$(pid_of b)")"
    ran=$(run_of a)
    within "$patience" has_run c "$(run_of c)" || fail "$way: c does not run beside what a keeps: $(app_of "$(pid_of c)")"
    [ "$(run_of a)" = "$ran" ] || fail "$way: a stands still and is charged: $ran s, then $(run_of a)"
    app_has "$(pid_of a)" '"state":"stopped"' || fail "$way: a is not stopped any more: $(app_of "$(pid_of a)")"
    "go_on_$way"
    within "$patience" has_run a "$ran" || fail "$way: a does not go on: $(app_of "$(pid_of a)")"
    within "$patience" has_run b "$(run_of b)" || fail "$way: b does not go on: $(app_of "$(pid_of b)")"
    say "$way: tried"
done
touch "$dir/enough"
expect_pass a b c
expect_empty

# --- who does not fit beside it is told by whom, and what to do; pausing it takes effect when it goes on ---

rm "$dir/enough"
app a linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
app b linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
app c linked --bytes 32M --iterations 3 --seed 3 --until "$dir/enough"
for i in a b c; do await_ready $i; done
set_paused pause b
within "$patience" runs a || fail "a has no turn: $(app_of "$(pid_of a)")"
halt_signal
set_paused resume b
is_told() {
    is_up && app_has "$(pid_of b)" "pid$(pid_of a)isstoppedandkeeps[0-9]*MiB:kill-CONT$(pid_of a)"
}
within "$patience" is_told || fail "b is not told why it waits: $(app_of "$(pid_of b)")"
within "$patience" has_run c "$(run_of c)" || fail "c does not run beside what a keeps: $(app_of "$(pid_of c)")"
"$ctl" pause "$(pid_of a)" > "$dir/said" || fail "a cannot be paused: $(cat "$dir/said")"
grep -q "takes effect when the program goes on.*kill -CONT $(pid_of a)" "$dir/said" || fail "pause says: $(cat "$dir/said")"
go_on_signal
within "$patience" has_state a paused || fail "a is not paused: $(app_of "$(pid_of a)")"
within "$patience" has_run b "$(run_of b)" || fail "b does not get the memory: $(app_of "$(pid_of b)")"
set_paused resume a
touch "$dir/enough"
expect_pass a b c
expect_empty
stop_daemon
