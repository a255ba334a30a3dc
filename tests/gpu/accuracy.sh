#!/bin/sh
# sh tests/gpu/accuracy.sh BUILD [SANITIZER]
#
# How well the launches of programs are predicted that the shipped profiles were not made from: a decoder in the shape of Llama, a
# mixture of experts, gathers (profile/shapes.py), and plain CUDA programs (programs/*.cu, where BUILD has them). Each runs with the
# profiler; mux-ctl profile --learn learns from a part of its launches and judges the others: by the profile, by addresses alone,
# and by whole allocations. BUILD and SANITIZER as for profile.sh. Records and outputs go to $OUT, or to a folder that is named.
# One call of LIMIT seconds (300). The last lines are a table.
set -u
umask 022
here=$(cd "$(dirname "$0")" && pwd) || exit 2
build=$(cd "${1:?usage: accuracy.sh BUILD [SANITIZER]}" && pwd) || exit 2
ctl=$build/daemon/mux-ctl
library=$build/shim/profiler/libgpumux-profile.so
out=${OUT:-$(mktemp -d)}
limit=${LIMIT:-300}
begun=$(date +%s)
[ -f "$library" ] || { echo "FAIL: $library is not built: sh tests/setup.sh --sanitizer, and nvcc"; exit 1; }
[ -z "${2:-}" ] || export GPUMUX_SANITIZER="$(cd "$2" && pwd)/libsanitizer-public.so"
mkdir -p "$out/log"
work=$(mktemp -d "${TMPDIR:-/tmp}/gm-accuracy.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT

# profiled NAME COMMAND...: until 40 s before the limit; what it did until then counts.
profiled() {
    name=$1
    shift
    mkdir -p "$work/$name"
    left=$((begun + limit - 40 - $(date +%s)))
    [ $left -gt 0 ] || return 0
    timeout -k 5 $left env CUDA_INJECTION64_PATH="$library" GPUMUX_PROFILE_RECORDS="$work/$name" "$@" > "$out/log/$name.txt" 2>&1
    echo "$? after $(($(date +%s) - begun)) s" > "$work/$name.ended"
}

for name in llama experts gathers; do
    profiled $name python3 -B "$here/profile/shapes.py" $name 12 &
done
for name in kmeans spmv bfs stencil transpose scan; do
    [ ! -x "$build/tests/gpu/programs/$name" ] || profiled $name "$build/tests/gpu/programs/$name" &
done
wait
for name in llama experts gathers kmeans spmv bfs stencil transpose scan; do
    [ -d "$work/$name" ] || continue
    timeout 30 "$ctl" profile --learn -o "$work/$name.profile" "$work/$name"/*.records > "$out/log/$name.learned.txt" 2>&1
done
echo "--- $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
for name in llama experts gathers kmeans spmv bfs stencil transpose scan; do
    [ -d "$work/$name" ] || continue
    echo "$name: exit code $(cat "$work/$name.ended"), $(cat "$work/$name"/*.records 2> /dev/null | grep -c '^launch ') launches"
    grep -E ' launches of | %  ' "$out/log/$name.learned.txt" | sed 's/^/  /' || tail -n 2 "$out/log/$name.learned.txt"
done
