#!/bin/sh
# One daemon, two GPUs of different sizes. Programs on one take turns; a program on the other one does not wait for them.
# A program on both runs when it may run on both, also while a kernel on one reads memory of the other. A program that
# sees one of them only knows it by another number.
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=1G,512M
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
part "two sizes"
start_daemon --gpu all --place off
spawn record "$ctl" trace record "$dir/trace"
within "$patience" test -s "$dir/trace" || fail "nothing is recorded"

# gpu_at INDEX KEY: a number of that GPU
gpu_at() {
    python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["gpus"][int(sys.argv[2])][sys.argv[3]]))' \
        "$dir/status.json" "$@"
}
[ "$(gpu_at 0 device_total_bytes)" = 1073741824 ] && [ "$(gpu_at 1 device_total_bytes)" = 536870912 ] ||
    fail "the GPUs are not those that there are"

export CUDA_VISIBLE_DEVICES=1
app alone linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
unset CUDA_VISIBLE_DEVICES
app one proc --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
app two dlsym --bytes 96M --iterations 3 --seed 3 --until "$dir/enough"
await_ready alone
await_ready one
"$ctl" status > "$dir/table" || fail "mux-ctl status failed"
grep -q "^ *APP *GPU *PID" "$dir/table" && grep -q " 1 *$(pid_of alone) " "$dir/table" &&
    grep -q " 0 *$(pid_of one) " "$dir/table" || fail "the table does not name the GPUs: $(cat "$dir/table")"
await_switches 4
expect_pass alone one two
"$ctl" log | grep -q ' GPU 0, app ' || fail "the log does not name the GPU"
take_status
[ "$(gpu_at 1 bytes_out)" = 0 ] || fail "the program that was alone on its GPU was swapped out"
[ "$(gpu_at 0 bytes_out)" -gt 0 ] || fail "the programs that share a GPU were not swapped out"
expect_empty

# one program on both, with others on each
rm "$dir/enough"
app both linked --mode devices --bytes 72M --allocs 3 --iterations 4 --seed 4 --until "$dir/enough"
app first proc --bytes 128M --iterations 3 --seed 5 --until "$dir/enough"
export CUDA_VISIBLE_DEVICES=1
app second dlsym --bytes 128M --iterations 3 --seed 6 --until "$dir/enough"
unset CUDA_VISIBLE_DEVICES
is_turned() {
    is_up && [ "$(gpu_at 0 switches)" -ge $((before + 4)) ]
}
before=$(gpu_at 0 switches)
within "$patience" is_turned
touch "$dir/enough"
expect_pass both first second
expect_empty

rm "$dir/enough"
app peer linked --mode peer --bytes 96M --hold 300 --iterations 3 --seed 1 --until "$dir/enough"
await_ready peer
app other proc --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
take_status
before=$(gpu_at 0 switches)
is_turned_or_dead() {
    is_turned || has_ended peer
}
within "$patience" is_turned_or_dead
touch "$dir/enough"
expect_pass peer other
expect_empty
stop_daemon
for gpu in 0 1; do
    "$BUILD/tests/sim/sim_sched" --replay "$dir/trace" $gpu > "$dir/replay" 2>&1 || fail "the trace of GPU $gpu: $(cat "$dir/replay")"
done

# GPUs that are not there, or twice
for gpus in 0,2 0,0 0, ,; do
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --pinned 512M --gpu "$gpus"
    await daemon
    [ "$code" = 1 ] && [ "$(wc -l < "$dir/daemon.out")" -le 2 ] || fail "--gpu $gpus: code $code, $(cat "$dir/daemon.out")"
    say "--gpu $gpus: $line"
done

# A program on two GPUs, of which a busy latency-critical program has one: who wants the other one has it meanwhile, and is
# not held up. The one on both has turns all the same, as it waits for --patience at most. And where a program that is
# stopped keeps its part of one GPU, the other GPU is there for others.
part idle
start_daemon --slice 200ms --patience 4s --gpu 0,1 --place off --idle 1s # who looks at its memory works

run_at() { # NAME GPU: seconds that it ran there
    python3 -c 'import json, sys
apps = json.load(open(sys.argv[1]))["apps"]
print(sum(a["run_s"] for a in apps if a["pid"] == int(sys.argv[2]) and a["gpu"] == int(sys.argv[3])))' \
        "$dir/status.json" "$(pid_of "$1")" "$2"
}
# has_run NAME GPU SINCE: for a tenth of a second more.
has_run() {
    is_up && awk -v now="$(run_at "$1" "$2")" -v then="$3" 'BEGIN { exit !(now > then + 0.1) }'
}

app both linked --mode devices --bytes 72M --allocs 3 --iterations 4 --seed 1 --until "$dir/enough"
await_ready both
export CUDA_VISIBLE_DEVICES=1 GPUMUX_CLASS=latency
app busy linked --bytes 150M --iterations 3 --seed 2 --until "$dir/enough"
unset CUDA_VISIBLE_DEVICES GPUMUX_CLASS
await_ready busy
app third linked --bytes 128M --iterations 3 --seed 3 --until "$dir/enough"
await_ready third

# The one on both waits for its turn on GPU 1, and the third one has GPU 0; until the first one goes first.
waits() {
    is_up && app_of "$(pid_of both)" > "$dir/both" && grep -q '"gpu":0.*"state":"waiting".*"reason":"gpus"' "$dir/both"
}
within "$patience" waits || fail "both does not wait: $(app_of "$(pid_of both)")"
for turn in 1 2; do
    within "$patience" has_run third 0 "$(run_at third 0)" || fail "the third one does not run on a GPU that nobody has"
done
within "$patience" has_run both 0 "$(run_at both 0)" || fail "who is on both has no turn: $(app_of "$(pid_of both)")"
within "$patience" has_run both 1 "$(run_at both 1)" || fail "who is on both has no turn: $(app_of "$(pid_of both)")"

# Who is stopped keeps its part of GPU 1. Who needs that has no turn on GPU 0 either, and the third one runs.
is_running_at_1() {
    is_up && app_has "$(pid_of busy)" '"state":"running"'
}
# If it is stopped as its turn ends, a part has left, and the one on both may fit beside the rest.
stop_busy() {
    within "$patience" is_running_at_1 || fail "busy does not run"
    stop busy
    within "$patience" has_state busy stopped || fail "busy is not stopped"
}
keeps_all() {
    [ "$(app_number "$(pid_of busy)" resident_bytes)" = "$(app_number "$(pid_of busy)" total_bytes)" ]
}
stop_busy
until keeps_all; do
    kill -CONT "$(pid_of busy)"
    stop_busy
done
is_told() {
    is_up && app_has "$(pid_of both)" "pid$(pid_of busy)isstopped"
}
within "$patience" is_told || fail "both is not told: $(app_of "$(pid_of both)")"
for turn in 1 2 3; do
    within "$patience" has_run third 0 "$(run_at third 0)" || fail "the third one does not run on a GPU that nobody has"
done
kill -CONT "$(pid_of busy)"
within "$patience" has_run busy 1 "$(run_at busy 1)" || fail "busy does not go on"
touch "$dir/enough"
expect_pass both busy third
expect_empty
stop_daemon
