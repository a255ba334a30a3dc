#!/bin/sh
# sh tests/gpu/record-profiles.sh BUILD OUT [SANITIZER]
#
# Makes the profiles that are shipped (profiles/), on a GPU, in one call of LIMIT seconds (540): the programs of the benches run
# with the profiler, all at once, each with a small size and then with that of its bench, so that what depends on a size shows.
# What they did until the limit counts. OUT gets smXX-NAME.profile, which belong into shim/profiler/profiles/, and log/.
#
# BUILD is a build of this tree with the profiler's library (sh tests/setup.sh --sanitizer before it, and nvcc). SANITIZER is the
# folder of libsanitizer-public.so, as for profile.sh. PyTorch programs are left out where there is none. Needs 70 GiB on the
# GPU and a processor for each of the 15 programs. Last comes a table.
set -u
umask 022 # a profile that a group may write is not read
here=$(cd "$(dirname "$0")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd)
build=$(cd "${1:?usage: record-profiles.sh BUILD OUT [SANITIZER]}" && pwd) || exit 2
mkdir -p "${2:?usage: record-profiles.sh BUILD OUT [SANITIZER]}/log" && out=$(cd "$2" && pwd) || exit 2
[ -z "${3:-}" ] || export GPUMUX_SANITIZER="$(cd "$3" && pwd)/libsanitizer-public.so"
ctl=$build/daemon/mux-ctl
library=$build/shim/profiler/libgpumux-profile.so
[ -f "$library" ] || { echo "FAIL: $library is not built: sh tests/setup.sh --sanitizer, and nvcc"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gm-record.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
begun=$(date +%s)
limit=${LIMIT:-540}
chip=sm$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)

# The driver loads the library when it starts; where it does not, the library is preloaded.
by=CUDA_INJECTION64_PATH

# profiled FAMILY NAME COMMAND...: run it with the profiler until 90 s before the limit; records go to work/FAMILY.
profiled() {
    family=$1 name=$2
    shift 2
    mkdir -p "$work/$family/$name"
    left=$((begun + limit - 90 - $(date +%s)))
    [ $left -gt 0 ] || return 0
    at=$(date +%s)
    timeout -k 5 $left env "$by=$library" GPUMUX_PROFILE_RECORDS="$work/$family/$name" "$@" >> "$out/log/$name.txt" 2>&1
    code=$?
    records=$(cat "$work/$family/$name"/*.records 2> /dev/null | grep -c '^launch ')
    printf '%-24s exit code %3d after %3d s, %7d launches so far\n' "$name" $code $(($(date +%s) - at)) "$records" >> "$work/ran"
}

# units N: what bench_science is asked.
units() {
    for unit in $(seq "$1"); do echo "run unit 0 $work/units.$name"; done
    echo check
}
science() {
    name=$1
    for size in 67108864 167772160 301989888 536870912; do
        units 5 | profiled science "$1" "$build/bench/bench_science" "$1" --bytes $size
    done
}

# model NAME UNITS SIZE...: a program of bench/python/models.py.
model() {
    model=$1 count=$2
    shift 2
    for size in "$@"; do
        echo load | profiled libraries "$model" python3 -B "$root/bench/python/actor.py" --model "$model" --bytes "$size" --units "$count"
    done
}

products='import torch
for kind in (torch.float32, torch.float16, torch.bfloat16):
    for tf32 in (False, True)[: 2 if kind is torch.float32 else 1]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in ((128, 96, 64), (256, 512, 384), (1024, 768, 512), (1024, 1024, 1024), (2048, 1536, 1024), (4096, 4096, 4096), (1, 4096, 4096), (16, 11008, 4096)):
            a, b, w = torch.randn(m, k, device="cuda").to(kind), torch.randn(k, n, device="cuda").to(kind), torch.randn(n, k, device="cuda").to(kind)
            for step in range(4):
                c, d = a @ b, a @ w.t()
torch.cuda.synchronize()'

if [ -x "$build/bench/bench_science" ]; then
    profiled science vectors "$build/bench/bench_science" vectors --bytes 67108864 < /dev/null
    if [ -z "$(ls "$work/science/vectors")" ]; then
        by=LD_PRELOAD
        profiled science vectors "$build/bench/bench_science" vectors --bytes 67108864 < /dev/null
    fi
    for name in wavelet hotspot flow neighbours vectors products; do
        science $name &
    done
else
    echo "skipped: $build/bench/bench_science is not built: it needs nvcc" | tee -a "$work/ran"
fi
profiled libraries product python3 "$here/profile/product.py" &
if python3 -c 'import torch; torch.zeros(1).cuda()' > /dev/null 2>&1; then
    G=1073741824
    profiled libraries matmul python3 -c "$products" &
    model decoder 4 $((2 * G)) &
    model decoder-graphs 4 $((2 * G)) &
    model resnet152 1 $((2 * G)) $((4 * G)) &
    model vgg19 1 $((2 * G)) $((4 * G)) &
    model inception_v3 1 $((2 * G)) $((4 * G)) &
    model densenet201 1 $((2 * G)) $((4 * G)) &
    model training 1 $((4 * G)) &
    model denoising 1 $((4 * G)) &
else
    echo "skipped: PyTorch's programs: there is no PyTorch that sees the GPU" | tee -a "$work/ran"
fi
wait

# One profile a family, of what is good enough, and all of them at most 2 MiB. PyTorch launches kernels of cuBLAS, too.
total=0
for family in science libraries; do
    [ -d "$work/$family" ] || continue
    timeout 80 "$ctl" profile --learn -o "$work/$family.profile" "$work/$family"/*/*.records > "$out/log/learned-$family.txt" 2>&1
    [ -f "$work/$family.profile" ] || { echo "$family: nothing was learned: $(tail -n 1 "$out/log/learned-$family.txt")" >> "$work/table"; continue; }
    profile=$out/$chip-$family.profile
    rm -f "$profile"
    said=$(python3 "$root/shim/profiler/profiles/select.py" --most $((2097152 - total)) "$work/$family.profile" "$profile")
    [ ! -f "$profile" ] || total=$((total + $(wc -c < "$profile")))
    echo "$chip-$family.profile: $said" >> "$work/table"
    grep -E ' launches of | %  ' "$out/log/learned-$family.txt" | sed "s/^/  /" >> "$work/table"
done
echo "--- programs ($(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), by $by)"
awk '{ last[$1] = $0 } END { for (name in last) print last[name] }' "$work/ran" | sort
grep -h '^gpumux-profile: ' "$out/log"/*.txt | sort | uniq -c | sort -rn | head -n 10
echo "--- profiles, of $total bytes in $(($(date +%s) - begun)) s; below each what all launches say that were not learned from"
cat "$work/table"
python3 "$root/shim/profiler/profiles/select.py" --check "$out"
