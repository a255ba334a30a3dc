#!/bin/sh
# sh bench/run-gpu.sh BUILD-DIR [--only NAME]... [--full] [--seconds N] [--disk DIR] [--simcuda]
#
# All benches on a machine with a GPU, in one call and under nine minutes: gate, link, host, copy, switch,
# oversize, tiers, prefetch. Needs the CUDA driver and a python3, no compiler and no package; BUILD-DIR is a build of this tree, made
# anywhere (tests/setup.sh --portable makes one that moves).
#
#   --only NAME   this one; may be given several times
#   --full        each bench as long as it is by itself, with both peers: too long for one call, so add --only
#   --seconds N   what has not ended after so long is stopped and counts as failed (525)
#   --disk DIR    folder of the disk tier (/var/tmp)
#   --simcuda     with small sizes on the simulated GPU: shows that everything runs, not how fast
#
# The results (README.md in bench/results says what they hold) and logs go to $OUT if that is set, else to
# bench/results. GM_COMMIT names the commit where there is no git. Last come a short table and the line
# "N passed, N failed"; the exit code is 0 if none failed.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
usage() {
    echo "usage: sh bench/run-gpu.sh BUILD-DIR [--only NAME]... [--full] [--seconds N] [--disk DIR] [--simcuda]" >&2
    exit 2
}
[ $# -gt 0 ] && [ -d "$1" ] || usage
build=$(cd "$1" && pwd) || exit 2
shift
only=
full=
simcuda=
limit=525
disk=/var/tmp
while [ $# -gt 0 ]; do
    case $1 in
    --only) only="$only ${2:?--only NAME}" && shift ;;
    --full) full=1 ;;
    --seconds) limit=${2:?--seconds N} && shift ;;
    --disk) disk=${2:?--disk DIR} && shift ;;
    --simcuda) simcuda=1 ;;
    *) usage ;;
    esac
    shift
done
command -v python3 > /dev/null 2>&1 || { echo "run-gpu: no python3"; exit 1; }
if [ -n "${OUT:-}" ]; then
    results=$OUT/bench
else
    results=$here/results
fi
mkdir -p "$results" || exit 1
date=$(date -u +%Y-%m-%d)
begun=$(date +%s)
if [ -z "${GM_COMMIT:-}" ]; then
    GM_COMMIT=$(git -C "$here" rev-parse HEAD 2> /dev/null) && export GM_COMMIT
fi
files=
passed=0
failed=0

# bench NAME COMMAND...: its table to the screen, the rest to its log; its result into a file of its own.
bench() {
    name=$1
    shift
    case " $only " in
    "  " | *" $name "*) ;;
    *) return ;;
    esac
    left=$((limit - ($(date +%s) - begun)))
    if [ "$left" -lt 5 ]; then
        echo "== $name: no time left"
        failed=$((failed + 1))
        return
    fi
    file=$results/$date-$name.json
    rm -f "$file"
    echo "== $name"
    from=$(date +%s)
    timeout -k 15 "$left" "$@" --json "$file"
    code=$?
    echo "-- $name: code $code after $(($(date +%s) - from)) s"
    case $code in
    0) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    [ -s "$file" ] && files="$files $file"
}

# script NAME ARGUMENT...: a bench in Python.
script() {
    script_name=$1
    shift
    bench "$script_name" python3 -u "$here/$script_name.py" --build "$build" --logs "$results/logs-$script_name" "$@"
}

if [ -n "$simcuda" ]; then
    sim=$(mktemp -d "${TMPDIR:-/tmp}/gpumux-sim.XXXXXX") || exit 1
    trap 'rm -rf "$sim"' EXIT
    export SIMCUDA_DIR="$sim" SIMCUDA_MEMORY=2G
    export LD_LIBRARY_PATH="$build/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    small="--link-bytes 32M --link-rounds 3"
    bench gate "$build/bench/gate" --rounds 5 --calls 100000
    bench link "$build/bench/link" --bytes 128M --rounds 3
    bench host "$build/bench/host" --bytes 32M --rounds 2
    bench copy "$build/bench/copy" --bytes 64M --rounds 2
    # shellcheck disable=SC2086 # a list of options
    {
        script switch $small --sizes 96M,128M --budget 160M --piece 40M --turns 5 --warm 2 --peer checkpoint --peer restart
        script oversize $small --size 160M --budget 96M --sweeps 3
        script tiers $small --sizes 96M,96M,96M --budget 112M --piece 40M --fractions 2/3,1/3 --rounds 2 --warm 1 --work 0,50ms \
            --disk "$disk" --disk-pinned 96M --disk-rounds 1 --host-bytes 32M --host-disk-bytes 128M
        script prefetch $small --sizes 96M,96M,96M --budget 128M --piece 40M --pinned 320M,128M --quantum 200ms --seconds 3
    }
elif [ -n "$full" ]; then
    bench gate "$build/bench/gate"
    bench link "$build/bench/link" --rounds 21
    bench host "$build/bench/host" --disk "$disk"
    bench copy "$build/bench/copy" --disk "$disk"
    script switch --peer checkpoint --peer restart
    script oversize
    script tiers --disk "$disk"
    script prefetch
else
    bench gate "$build/bench/gate"
    bench link "$build/bench/link"
    bench host "$build/bench/host" --rounds 3
    bench copy "$build/bench/copy" --rounds 3
    script switch --peer checkpoint --peer restart --peer-turns 2
    script oversize --sweeps 5
    script tiers --disk "$disk" --rounds 4 --warm 1 --disk-rounds 1
    script prefetch --pinned 14G --seconds 15
fi

echo
echo "== results, in $results"
# shellcheck disable=SC2086 # a list of files
[ -z "$files" ] || python3 "$here/summary.py" $files || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
