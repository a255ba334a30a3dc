#!/bin/sh
# sh bench/demo.sh: shows two unmodified CUDA programs sharing one GPU that has no room for both.
#
# Installs what is missing, builds, starts the daemon, runs two programs that each need 60 % of the budget, shows
# `mux-ctl status` while they share the GPU, verifies every byte of their memory, and says what moved. On the real
# GPU if there is one, else on a simulated one.
#
#   --simcuda     on the simulated GPU even if there is a real one
#   --build DIR   use this build; install and build nothing
#   --budget SIZE of GPU memory to share (4G on a real GPU, 320M on the simulated one)
#   --seconds N   how long the programs run (8)
#
# The last line is "demo: PASS ..." or "demo: FAIL ...", and the exit code says the same.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/setup.sh"

build=
budget=
simcuda=
simulated=
seconds=8
while [ $# -gt 0 ]; do
    case $1 in
    --simcuda) simcuda=1 ;;
    --build) build=${2:?--build DIR} && shift ;;
    --budget) budget=${2:?--budget SIZE} && shift ;;
    --seconds) seconds=${2:?--seconds N} && shift ;;
    *) gm_die "usage: sh bench/demo.sh [--simcuda] [--build DIR] [--budget SIZE] [--seconds N]" ;;
    esac
    shift
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/gpumux-demo.XXXXXX") || exit 1
daemon=
one=
two=
cleanup() {
    code=$?
    trap - EXIT INT TERM HUP
    for pid in $one $two $daemon; do kill "$pid" 2> /dev/null; done
    wait
    rm -rf "$dir"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    for log in daemon one two; do
        [ -s "$dir/$log.out" ] && { echo "--- $log, last lines"; tail -n 10 "$dir/$log.out"; }
    done
    echo "demo: FAIL $*"
    exit 1
}

if [ -z "$build" ]; then
    build=$root/build
    gm_install
    echo "demo: building in $build"
    gm_configure "$build" && gm_build "$build" || fail "gpumux does not build (see $build.log)"
fi
[ -d "$build" ] || fail "no folder $build"
build=$(cd "$build" && pwd)

# A GPU counts if the driver library is there and a device file to go with it.
has_gpu() {
    [ -e /dev/nvidiactl ] || return 1
    { command -v nvidia-smi > /dev/null 2>&1 && nvidia-smi -L 2> /dev/null | grep -q '^GPU '; } ||
        { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'; }
}
if [ -z "$simcuda" ] && has_gpu; then
    where="the real GPU: $(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)"
    budget=${budget:-4G}
    pinned=8G
    quantum=500ms
else
    where="the simulated GPU: $([ -n "$simcuda" ] && echo "as asked" || echo "no NVIDIA GPU was found")"
    export LD_LIBRARY_PATH="$build/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export SIMCUDA_DIR="$dir/sim" SIMCUDA_MEMORY=1G
    mkdir "$SIMCUDA_DIR"
    # The second program opens the driver late. The simulated kernel driver is found only if the library comes before
    # libc, and gpumux sees what is asked of it only if it comes first.
    simulated="LD_PRELOAD=$build/shim/libgpumux.so:$build/tests/simcuda/libcuda.so.1"
    budget=${budget:-320M}
    pinned=512M
    quantum=250ms
fi
echo "demo: on $where"

# Everything about the daemon that follows is read from `mux-ctl status --json`.
ctl=$build/daemon/mux-ctl
export GPUMUX_SOCKET="$dir/gpumux.sock"
status_number() {
    "$ctl" status --json 2> /dev/null | tr -d ' \n\t' | sed 's/.*"gpus"://' |
        grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2
}
mib() {
    echo "$(($1 >> 20)) MiB"
}

echo "demo: gpumuxd with a budget of $budget"
"$build/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget "$budget" --pinned "$pinned" \
    --policy round-robin --quantum "$quantum" > "$dir/daemon.out" 2>&1 &
daemon=$!
tries=0
until bytes=$(status_number budget_bytes) && [ -n "$bytes" ]; do
    kill -0 "$daemon" 2> /dev/null && [ $tries -lt 300 ] || fail "the daemon did not start"
    tries=$((tries + 1))
    sleep 0.1
done
each=$((bytes / 10 * 6))

# Three ways of starting a program under gpumux are the same: LD_PRELOAD, mux-ctl run, a line in a unit file.
echo "demo: two programs, each verifying and rewriting $(mib "$each") (60 % of the budget) again and again:"
echo "    LD_PRELOAD=libgpumux.so gm_worker --bytes $each"
echo "    mux-ctl run -- gm_worker_proc --bytes $each"
LD_PRELOAD="$build/shim/libgpumux.so" "$build/tests/programs/gm_worker" --bytes "$each" --allocs 4 --seconds "$seconds" \
    --seed 1 --ready "$dir/one.ready" > "$dir/one.out" 2>&1 &
one=$!
env ${simulated:+"$simulated"} "$ctl" run -- "$build/tests/programs/gm_worker_proc" --bytes "$each" --allocs 4 --seconds "$seconds" \
    --seed 2 --ready "$dir/two.ready" > "$dir/two.out" 2>&1 &
two=$!
tries=0
until [ -f "$dir/one.ready" ] && [ -f "$dir/two.ready" ]; do
    kill -0 $one 2> /dev/null && kill -0 $two 2> /dev/null && [ $tries -lt 600 ] || fail "a program did not start"
    tries=$((tries + 1))
    sleep 0.1
done
for _ in 1 2 3; do
    sleep 1
    echo
    echo "\$ mux-ctl status"
    "$ctl" status || fail "mux-ctl status"
done
if [ -n "$simulated" ] && "$ctl" status | grep '^app .* without '; then
    fail "a program does without something that this GPU has"
fi
echo
wait "$one"
code_one=$?
wait "$two"
code_two=$?
switches=$(status_number switches)
bytes_in=$(status_number bytes_in)
bytes_out=$(status_number bytes_out)
for app in one two; do echo "program $app: $(tail -n 1 "$dir/$app.out")"; done
wrong=$(sed -n 's/.*mismatches=\([0-9]*\).*/\1/p' "$dir/one.out" "$dir/two.out" | awk '{ n += $1 } END { printf "%.0f\n", n }')
kill "$daemon"
wait "$daemon"
code_daemon=$?
daemon=

[ "$code_one" = 0 ] && [ "$code_two" = 0 ] || fail "a program failed ($code_one, $code_two)"
[ "$(cat "$dir/one.out" "$dir/two.out" | grep -c '^PASS .*mismatches=0 ')" = 2 ] || fail "$wrong mismatches"
[ "${switches:-0}" -ge 5 ] || fail "only ${switches:-no} switches: the programs did not share the GPU"
[ "${bytes_in:-0}" -gt 0 ] && [ "${bytes_out:-0}" -gt 0 ] || fail "nothing moved"
[ "$code_daemon" = 0 ] || fail "the daemon ended with $code_daemon"
echo "demo: PASS $switches switches, $(mib "$bytes_out") out and $(mib "$bytes_in") in, $wrong mismatches, on ${where%%:*}"
