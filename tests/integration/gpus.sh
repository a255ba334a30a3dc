#!/bin/sh
# One daemon, two GPUs of different sizes. Programs on one take turns; a program on the other one does not wait for them.
# A program on both runs when it may run on both, also while a kernel on one reads memory of the other. A program that
# sees one of them only knows it by another number.
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=1G,512M
. "$(dirname "$0")/lib.sh"
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
app alone linked --bytes 96M --iterations 20 --seconds 2 --seed 1 --until "$dir/enough"
unset CUDA_VISIBLE_DEVICES
app one proc --bytes 96M --iterations 10 --seconds 2 --seed 2 --until "$dir/enough"
app two dlsym --bytes 96M --iterations 10 --seconds 2 --seed 3 --until "$dir/enough"
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
app both linked --mode devices --bytes 72M --allocs 3 --iterations 4 --seconds 2 --seed 4 --until "$dir/enough"
app first proc --bytes 128M --iterations 10 --seconds 2 --seed 5 --until "$dir/enough"
export CUDA_VISIBLE_DEVICES=1
app second dlsym --bytes 128M --iterations 10 --seconds 2 --seed 6 --until "$dir/enough"
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
app other proc --bytes 96M --iterations 10 --seed 2 --until "$dir/enough"
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
