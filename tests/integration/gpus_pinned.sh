#!/bin/sh
# Two GPUs share pinned memory by need. The programs of one get more than half of it, while those of the other need less.
# When they have ended, the programs of the other GPU get it.
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=512M,512M
. "$(dirname "$0")/lib.sh"
# Beside the windows of 64 MiB there are 256 MiB: half of that has room for two programs on each GPU, not for three.
start_daemon --gpu all --gpu-budget 128M --pinned 384M

out_of() {
    python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["gpus"][int(sys.argv[2])]["bytes_out"]))' \
        "$dir/status.json" "$1"
}

# three GPU SEED: programs on that GPU that need 208 MiB of pinned memory
three() {
    export CUDA_VISIBLE_DEVICES="$1"
    rm -f "$dir/enough"
    for n in 1 2 3; do
        app "app$1$n" linked --bytes 112M --iterations 2 --seed "$2$n" --until "$dir/enough"
        await_ready "app$1$n"
    done
    unset CUDA_VISIBLE_DEVICES
}
for gpu in 0 1; do
    three "$gpu" "$((gpu + 1))"
    export CUDA_VISIBLE_DEVICES=$((1 - gpu))
    app beside proc --bytes 96M --iterations 2 --seed 9 --until "$dir/enough"
    unset CUDA_VISIBLE_DEVICES
    await_ready beside
    touch "$dir/enough"
    expect_pass "app${gpu}1" "app${gpu}2" "app${gpu}3" beside
    expect_empty
    [ "$(out_of "$gpu")" -gt 0 ] || fail "nothing left GPU $gpu"
done
stop_daemon
