#!/bin/sh
# sh bench/run-gpu.sh BUILD-DIR [--set NAME,...] [--budget S] [--disk DIR] [--simcuda] [-- OPTION...]
#
# Benches that need a GPU, in one call that ends within the budget. BUILD-DIR is a build of this tree, made anywhere
# (tests/setup.sh --portable makes one that moves). It needs the CUDA driver and a python3, no compiler and no package, but
# PyTorch where a bench has models; 16 processors, 100 GiB of memory, 70 GiB on the GPU and 40 GiB on the disk.
#
#   sh bench/run-gpu.sh build-portable --budget 380 --disk /var/tmp
#   sh bench/run-gpu.sh build-portable --set latency --budget 150 -- --workloads T,Y
#   sh bench/run-gpu.sh build-portable --set working --budget 500 -- --cells three,three-one
#
#   --set NAME,...  memory, which is copy, link, tiers, switch and sweep (and what is measured without this option); or any
#                   of these, models, hash, gate, decide, idle, starts, interactive, overhead, latency, working, multi, mixes and
#                   links. python3 bench/NAME.py --help explains each; tiers is a set of switch.py, sweep and models are
#                   parts of oversize.py
#   --budget S      all of it ends within so many seconds (380): each has as much of what is left
#   --disk DIR      folder of the disk tier (without it: no disk)
#   --simcuda       with small sizes on the simulated GPU, and no PyTorch: shows that everything runs, not how fast
#   -- OPTION...    for the benches themselves
#
# A bench that does not end by itself is stopped, writes what it has measured, counts as failed, and takes no time from
# the others. A result of each goes to $OUT/bench with the logs of all in one more file; without $OUT to
# BUILD-DIR/bench/results. GM_COMMIT names the commit where there is no git. What a page quotes is kept as a summary:
# python3 bench/summary.py RESULT > bench/results/NAME.txt
# Last comes the line "N passed, N failed"; the exit code is 0 if none failed.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
usage() {
    sed -n '2s/^# /usage: /p' "$0" >&2
    exit 2
}
[ $# -gt 0 ] && [ -d "$1" ] || usage
build=$(cd "$1" && pwd) || exit 2
shift
benches=memory
simcuda=
budget=380
disk=
while [ $# -gt 0 ]; do
    case $1 in
    --budget) budget=${2:?--budget SECONDS} && shift ;;
    --set) benches=$(echo "${2:?--set NAME,...}" | tr , ' ') && shift ;;
    --)
        shift
        break
        ;;
    --disk) disk=${2:?--disk DIR} && shift ;;
    --simcuda) simcuda=1 ;;
    *) usage ;;
    esac
    shift
done
[ "$budget" -ge 30 ] 2> /dev/null || usage
[ "$benches" != memory ] || benches="copy link tiers switch sweep"
command -v python3 > /dev/null 2>&1 || { echo "run-gpu: no python3"; exit 1; }
begun=$(date +%s)
work=$(mktemp -d "${TMPDIR:-/tmp}/gpumux-run.XXXXXX") || exit 1
logs=$work/logs
results=${OUT:-$build}/bench
[ -n "${OUT:-}" ] || results=$results/results
mkdir -p "$results" "$logs" || exit 1
date=$(date -u +%Y-%m-%d)
if [ -z "${GM_COMMIT:-}" ]; then
    GM_COMMIT=$(git -C "$here" rev-parse HEAD 2> /dev/null) && export GM_COMMIT
fi
if [ -n "$simcuda" ]; then
    mkdir "$work/sim"
    export SIMCUDA_DIR="$work/sim" SIMCUDA_MEMORY=2G
    export LD_LIBRARY_PATH="$build/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
passed=0
failed=0
child=

# What every way out does: the logs into one file, the last line.
finish() {
    tar -C "$work" -czf "$results/$date-logs.tar.gz" logs
    rm -rf "$work"
    echo
    echo "== results after $(($(date +%s) - begun)) s, in $results"
    echo "$passed passed, $failed failed"
}
stopped() {
    trap '' INT TERM
    echo "run-gpu: stopped"
    [ -z "$child" ] || { kill -TERM "$child" 2> /dev/null && wait "$child"; }
    failed=$((failed + 1))
    finish
    exit 1
}
trap stopped INT TERM

# bench COMMAND...: its table to the screen; its result into a file of its own.
bench() {
    file=$results/$date-$name.json
    rm -f "$file"
    echo "== $name"
    from=$(date +%s)
    timeout -k 3 $((share + 5)) "$@" --json "$file" &
    child=$!
    wait "$child"
    code=$?
    child=
    echo "-- $name: code $code after $(($(date +%s) - from)) s"
    [ "$code" = 0 ] && passed=$((passed + 1)) || failed=$((failed + 1))
}

# script FILE ARGUMENT...: a bench in Python, which ends in its share of the time.
script() {
    script_file=$1
    shift
    bench python3 -B -u "$here/$script_file.py" --build "$build" --logs "$logs/$name" --seconds "$share" "$@"
}

# run NAME [OPTION...]
run() {
    name=$1
    shift
    small=${simcuda:+--link-bytes 32M --link-rounds 1 --gap 60ms}
    # shellcheck disable=SC2086 # lists of options
    case $name in
    copy) bench "$build/bench/copy" ${simcuda:+--bytes 64M} --rounds 3 "$@" ;;
    link) bench "$build/bench/link" ${simcuda:+--bytes 64M} --rounds 5 "$@" ;;
    hash) bench "$build/bench/hash" ${simcuda:+--bytes 128M --rounds 2} "$@" ;;
    gate | decide) bench "$build/bench/$name" "$@" ;;
    switch) script switch $small ${simcuda:+--sizes 96M,128M --budget 160M --piece 40M} --turns 50 "$@" ;;
    tiers)
        script switch --set tiers $small ${simcuda:+--sizes 132M,132M,132M --budget 136M --piece 24M --work 50ms} \
            --turns 50 ${disk:+--disk "$disk"} "$@"
        ;;
    sweep) script oversize --parts sweep $small ${simcuda:+--size 160M --budget 96M --pinned 160M} "$@" ;;
    models)
        script oversize --parts decode,train,resident $small ${simcuda:+--layer 4M --decode 96M/64M --train 96M/64M \
            --resident 96M --workspace 4M --host 16M --warm 2s --rounds 3 --repeats 1} "$@"
        ;;
    interactive)
        script interactive $small ${simcuda:+--programs app --piece 40M --sizes 96M,128M --budget 160M \
            --intervals 300ms,1s} "$@"
        ;;
    overhead) script overhead ${simcuda:+--turn 5ms --rounds 6 --budget 512M --only launch-1,launch-8,graph-20} "$@" ;;
    latency) script latency ${simcuda:+--programs app --window 300ms} "$@" ;;
    working)
        script working $small ${simcuda:+--programs app --pool 64M --piece 4M --touch 8M --hidden 8M --decoder 56M \
            --budget 96M --beside-budget 72M --hidden-budget 44M --framework-budget 96M --turn 100ms --warm 1s --block 500ms --found 1s \
            --move 3s --moves 1} "$@"
        ;;
    multi)
        script multi $small ${simcuda:+--programs app --piece 8M --decoder 32M --cnn 32M --kernel 32M --pair-budget 64M \
            --warm 300ms --block 400ms --rounds 1 --turns 100ms} "$@"
        ;;
    mixes) script mixes ${simcuda:+--card 64M --alone 50ms --cells W1-sa,W1-case,W1-now,W1-fit} "$@" ;;
    links) script links $small "$@" ;;
    starts) script starts ${simcuda:+--size 64M --piece 16M --chain 3 --rounds 2} "$@" ;;
    idle) script idle ${simcuda:+--size 4M --stretch 1 --rounds 3} "$@" ;;
    *)
        echo "== $name: there is no such bench"
        failed=$((failed + 1))
        ;;
    esac
}

# shellcheck disable=SC2086 # a list of names
left_benches=$(echo $benches | wc -w)
for one in $benches; do
    left=$((budget - 4 - ($(date +%s) - begun)))
    share=$((left / left_benches - 8)) # and to stop
    left_benches=$((left_benches - 1))
    if [ "$share" -lt 1 ]; then
        echo "== $one: no time left"
        failed=$((failed + 1))
        continue
    fi
    run "$one" "$@"
done
finish
[ "$failed" -eq 0 ]
