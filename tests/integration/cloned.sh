#!/bin/sh
# A program that is killed has a child of clone(), which has copies of all that it had open: its connection, too. Its turn
# is gone with its process. Its memory, which the driver keeps for the child, is counted until that ends; who fits beside
# it runs, who does not waits and is told which process to end. Two in a row, as the first one's place is free again.
. "$(dirname "$0")/lib.sh"
start_daemon

has_run() {
    is_up && awk -v now="$(app_number "$(pid_of "$1")" run_s)" -v then="$2" 'BEGIN { exit !(now > then + 0.3) }'
}
is_gone() {
    is_up && app_has "$dead" '"state":"gone"' && app_has "$dead" "$told"
}
is_told() {
    is_up && app_has "$(pid_of large)" "needs[0-9]*MiBontheGPU:$told"
}
is_forgotten() {
    is_up && ! app_has "$dead" pid
}
app small linked --bytes 48M --iterations 3 --seed 1 --until "$dir/enough"
app large linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
await_ready small
await_ready large
for round in 1 2; do
    # The others are away meanwhile, so that what the child has copies of is what its parent has on the GPU at its end.
    "$ctl" pause --command=gm_worker > "$dir/said" || fail "pause: $(cat "$dir/said")"
    app parent linked --mode clone --bytes 96M --iterations 100000 --seed "$round" --until "$dir/child$round"
    await_ready parent
    dead=$(pid_of parent)
    kill -KILL "$dead"
    "$ctl" resume --command=gm_worker > "$dir/said" || fail "resume: $(cat "$dir/said")"
    told="pid\([0-9]*\)hascopiesofwhatpid${dead}had,whichhasended,andkeeps[0-9]*MiB:endpid\1"
    within "$patience" is_gone || fail "the dead program is not gone: $(app_of "$dead")"
    app_has "$dead" '"resident_bytes":0' || fail "the dead program has memory: $(app_of "$dead")"
    within "$patience" is_told || fail "the large program is not told: $(app_of "$(pid_of large)")"
    within "$patience" has_run small "$(app_number "$(pid_of small)" run_s)" || fail "the small program does not run"
    app_has "$(pid_of large)" '"state":"waiting"' || fail "the large program runs in memory that is not there"
    child=$(app_of "$dead" | sed "s/.*$told.*/\1/")
    grep -q "child$round" "/proc/$child/cmdline" || fail "another process is named: $child"
    kill -KILL "$child"
    within "$patience" is_forgotten || fail "the dead program is not forgotten: $(app_of "$dead")"
    within "$patience" has_run large "$(app_number "$(pid_of large)" run_s)" || fail "the large program does not go on"
done
touch "$dir/enough"
expect_pass small large
expect_empty
stop_daemon
