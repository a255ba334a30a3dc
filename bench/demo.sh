#!/bin/sh
# sh bench/demo.sh: shows two unmodified CUDA programs that do not fit into the GPU together. Without gpumux the second one
# ends with out of memory; with gpumux both stay loaded, and answer in turn.
#
# Installs what is missing, builds what the demo needs, and runs it on the real GPU if there is one, else on a simulated
# one. Nothing of the system changes, and a daemon that runs is left alone.
#
#   --models        a language model and one that makes pictures, of random weights, on a GPU that holds one of them: with
#                   the time from the request to the first token. For a GPU, and a python3 with PyTorch
#   --memory SIZE   of the GPU, at most; the demo takes the rest itself (24G)
#   --simcuda       on the simulated GPU even if there is a real one
#   --build DIR     use this build; install and build nothing
#   --requests N    to each program (5)
#
# The last line is "demo: PASS ..." or "demo: FAIL ...", and the exit code says the same.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/setup.sh"

build=
simcuda=
for word in "$@"; do
    case $word in
    --build | --build=*) build=1 ;;
    --simcuda) simcuda=1 ;;
    -h | --help) exec sed -n '2,/^set -u/{/^#/s/^# \{0,1\}//p}' "$0" ;;
    esac
done

if [ -z "$build" ]; then
    gm_install
    gm_has python3 || gm_apt python3
    echo "demo: building what it needs in $root/build"
    gm_configure "$root/build" && gm_build "$root/build" gpumuxd mux-ctl gpumux simcuda simnvml bench_app ||
        { echo "demo: FAIL gpumux does not build (see $root/build.log)"; exit 1; }
fi
gm_has python3 || gm_die "there is no python3"

# A GPU counts if the driver library is there and a device file to go with it.
has_gpu() {
    [ -e /dev/nvidiactl ] || return 1
    { command -v nvidia-smi > /dev/null 2>&1 && nvidia-smi -L 2> /dev/null | grep -q '^GPU '; } ||
        { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'; }
}
if [ -z "$simcuda" ] && ! has_gpu; then
    echo "demo: no NVIDIA GPU was found: a simulated one takes its place"
    set -- "$@" --simcuda
fi
exec python3 -B "$root/bench/demo.py" "$@"
