#!/bin/sh
# sh bench/run-gpu.sh BUILD-DIR [--set SET] [--workloads W,...] [--budget S] [--only NAME]... [--full] [--disk DIR] [--simcuda] [-- OPTION...]
#
# The benches that need a GPU, in one call that ends within the budget:
#
#   sh bench/run-gpu.sh build-portable --budget 380 --disk /var/tmp
#
# runs those of memory: copy, link, tiers, switch and oversize, each in its share of the time: they make as
# many turns as fit.
#
#   sh bench/run-gpu.sh build-portable --set sched --budget 600
#
# runs those of the scheduler: interactive, batch and pipeline, with models in PyTorch; --set overhead runs overhead,
# what gpumux costs when everything fits (400 s or more are good for it).
#
#   sh bench/run-gpu.sh build-portable --set latency --workloads T,Y --budget 150
#
# runs latency: latency-critical programs beside best-effort ones. A workload takes a minute, all nine 580 s.
#
# A bench that does not end by itself is stopped, writes what it has measured, counts as failed, and takes no time from
# the others. Needs the CUDA driver and a python3, no compiler and no package, but PyTorch for all sets but memory; 16
# processors, 100 GiB of memory, 70 GiB on the GPU (60 for the first set) and 40 GiB on the disk. BUILD-DIR is a build
# of this tree, made anywhere (tests/setup.sh --portable makes one that moves).
#
#   sh bench/run-gpu.sh build-portable --set working --budget 500 -- --cells three,hidden
#
# runs working: programs of which a turn touches a part. A cell takes two minutes. So runs --set multi: programs that take
# turns; python3 bench/multi.py --list names its cells. And --set mixes: many programs at once, on one GPU or several. What it costs to mark what work touches:
#
#   sh bench/run-gpu.sh build-portable --set overhead -- --marking --only launch-1,launch-8,graph-20,resnet50,decode
#
#   --set SET     memory, sched, overhead, latency, working, multi or mixes (memory)
#   --workloads W,...  of latency (all but the chats)
#   --budget S    all of it ends within so many seconds (380)
#   --only NAME   this one of any set, or predict, idle, hash, first, models (oversize.py with models), or gate, disk, plan or sched, which need no GPU; may be given several
#                 times, and the budget is theirs
#   --full        each bench as long as it is by itself, with both peers: give it more time, or add --only
#   --disk DIR    folder of the disk tier (/var/tmp)
#   --simcuda     with small sizes on the simulated GPU, and no PyTorch: shows that everything runs, not how fast;
#                 --budget 100 will do
#   -- OPTION...  for overhead, working, multi or mixes itself
#
# A result of each goes to $OUT/bench with the logs of all in one more file, eight files at most; without $OUT to
# BUILD-DIR/bench/results. GM_COMMIT names the commit where there is no git. What a page quotes is kept as a summary:
# python3 bench/summary.py --keep RESULT > bench/results/NAME.txt
# Last come a short table and the line "N passed, N failed"; the exit code is 0 if none failed.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
usage() {
    sed -n '2s/^# /usage: /p' "$0" >&2
    exit 2
}
[ $# -gt 0 ] && [ -d "$1" ] || usage
build=$(cd "$1" && pwd) || exit 2
shift
only=
workloads=
options=
set=memory
full=
simcuda=
budget=380
disk=/var/tmp
while [ $# -gt 0 ]; do
    case $1 in
    --budget) budget=${2:?--budget SECONDS} && shift ;;
    --only) only="$only ${2:?--only NAME}" && shift ;;
    --set) set=${2:?--set NAME} && shift ;;
    --workloads) workloads=${2:?--workloads NAME,...} && shift ;;
    --)
        shift
        options=$*
        break
        ;;
    --full) full=1 ;;
    --disk) disk=${2:?--disk DIR} && shift ;;
    --simcuda) simcuda=1 ;;
    *) usage ;;
    esac
    shift
done
[ "$budget" -ge 30 ] 2> /dev/null || usage
case $set in
memory | sched | overhead | latency | working | multi | mixes) ;;
*) usage ;;
esac
command -v python3 > /dev/null 2>&1 || { echo "run-gpu: no python3"; exit 1; }
begun=$(date +%s)
work=$(mktemp -d "${TMPDIR:-/tmp}/gpumux-run.XXXXXX") || exit 1
logs=$work/logs
if [ -n "${OUT:-}" ]; then
    results=$OUT/bench
else
    results=$build/bench/results
fi
mkdir -p "$results" "$logs" || exit 1
date=$(date -u +%Y-%m-%d)
if [ -z "${GM_COMMIT:-}" ]; then
    GM_COMMIT=$(git -C "$here" rev-parse HEAD 2> /dev/null) && export GM_COMMIT
fi
files=
passed=0
failed=0
child=
share=

# What every way out does: the logs into one file, the table, the last line.
finish() {
    tar -C "$work" -czf "$results/$date-logs.tar.gz" logs
    rm -rf "$work"
    echo
    echo "== results after $(($(date +%s) - begun)) s, in $results"
    # shellcheck disable=SC2086 # a list of files
    [ -z "$files" ] || python3 -B "$here/summary.py" $files || failed=$((failed + 1))
    # shellcheck disable=SC2086
    [ -z "$files" ] || python3 -B "$here/summary.py" --keep $files > "$results/$date-summary.txt"
    echo "$passed passed, $failed failed"
}
stopped() {
    trap '' INT TERM
    echo "run-gpu: stopped"
    if [ -n "$child" ]; then
        kill -TERM "$child" 2> /dev/null
        wait "$child"
        [ -s "$file" ] && files="$files $file"
    fi
    failed=$((failed + 1))
    finish
    exit 1
}
trap stopped INT TERM

# weight NAME: of the time, in percent of what its set has. All of a set, with the 8 s that each may take longer, to
# stop, are less than the budget.
weight() {
    case $1 in
    copy) echo 7 ;;
    link) echo 3 ;;
    tiers) echo 44 ;;
    switch) echo 9 ;;
    oversize) echo 6 ;;
    interactive) echo 50 ;;
    batch) echo 30 ;;
    pipeline) echo 12 ;;
    first) echo 90 ;;
    overhead | latency | working | multi | mixes) echo 92 ;;
    gate | disk | plan | sched | idle | hash | predict) echo 10 ;;
    models) echo 60 ;;
    *) echo 0 ;;
    esac
}
weights=100
if [ -n "$only" ]; then
    weights=0
    for one in $only; do
        [ "$(weight "$one")" -gt 0 ] || {
            echo "run-gpu: there is no bench $one" >&2
            rm -rf "$work"
            exit 2
        }
        weights=$((weights + $(weight "$one")))
    done
    weights=$((weights * budget / (budget - 14))) # what is left to start and to stop
fi

# is_wanted NAME: with --only by that alone, else by its set.
is_wanted() {
    if [ -n "$only" ]; then
        case " $only " in *" $1 "*) return 0 ;; esac
        return 1
    fi
    case $1 in
    copy | link | tiers | switch | oversize) [ "$set" = memory ] ;;
    interactive | batch | pipeline) [ "$set" = sched ] ;;
    overhead | latency | working | multi | mixes) [ "$set" = "$1" ] ;;
    *) return 1 ;;
    esac
}

# bench NAME COMMAND...: its table to the screen; its result into a file of its own.
bench() {
    name=$1
    shift
    is_wanted "$name" || return
    share=$((budget * $(weight "$name") / weights))
    left=$((budget - 4 - ($(date +%s) - begun)))
    limit=$((share + 5))
    if [ -n "$full$only" ] || [ "$limit" -gt "$left" ]; then
        limit=$left
    fi
    if [ "$limit" -lt 5 ]; then
        echo "== $name: no time left"
        failed=$((failed + 1))
        return
    fi
    file=$results/$date-$name.json
    rm -f "$file"
    echo "== $name"
    from=$(date +%s)
    timeout -k 3 "$limit" "$@" --json "$file" &
    child=$!
    wait "$child"
    code=$?
    child=
    echo "-- $name: code $code after $(($(date +%s) - from)) s"
    case $code in
    0) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    [ -s "$file" ] && files="$files $file"
}

# script NAME ARGUMENT...: a bench in Python, which ends in its share of the time.
script() {
    script_name=$1
    file_name=$script_name
    [ "$script_name" != models ] || file_name=oversize
    shift
    set -- "$script_name" python3 -B -u "$here/$file_name.py" --build "$build" --logs "$logs/$script_name" "$@"
    if [ -z "$full" ]; then
        set -- "$@" --seconds $((budget * $(weight "$script_name") / weights))
    fi
    [ ! -s "$results/$date-copy.json" ] || set -- "$@" --copies "$results/$date-copy.json"
    bench "$@"
}

rm -f "$results/$date-copy.json" # of a run before
if [ -n "$simcuda" ]; then
    mkdir "$work/sim"
    export SIMCUDA_DIR="$work/sim" SIMCUDA_MEMORY=2G
    export LD_LIBRARY_PATH="$build/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    small="--link-bytes 32M --link-rounds 1"
    models="--programs app --piece 40M --option slice=500ms"
    bench copy "$build/bench/copy" --bytes 64M --rounds 2
    bench link "$build/bench/link" --bytes 64M --rounds 2
    # shellcheck disable=SC2086 # a list of options
    {
        script tiers $small --gap 60ms --sizes 132M,132M,132M --budget 136M --piece 24M --fractions 4/7 \
            --work 0,100ms --rounds 50 --disk "$disk" --disk-pinned 224M --disk-paged 0 --disk-rounds 50 \
            --disk-bytes 128M
        script switch $small --gap 60ms --sizes 96M,128M --budget 160M --piece 40M --turns 50
        script oversize $small --gap 60ms --parts sweep --size 160M --budget 96M --pinned 160M
    }
elif [ -n "$full" ]; then
    bench copy "$build/bench/copy" --disk "$disk"
    bench link "$build/bench/link" --rounds 21
    script tiers --disk "$disk" --fractions 1/3,1/5,1/10
    script switch --peer checkpoint --peer restart
    script oversize --parts sweep
else
    bench copy "$build/bench/copy" --rounds 3
    bench link "$build/bench/link" --rounds 5
    script tiers --disk "$disk" --rounds 50 --disk-rounds 50
    script switch --turns 50
    script oversize --parts sweep
fi
if [ -n "$simcuda" ]; then
    # The scheduler's times are as much shorter as the requests come sooner.
    # shellcheck disable=SC2086
    {
        script interactive $small $models --option slice=300ms --sizes 96M,128M --budget 160M \
            --intervals 300ms,600ms,1s --windows 2s,2s,3s --round-robin 300ms,1s --warm 1s --level-within 4s
        script batch $small $models --option slice=200ms --gap 150ms --sizes 96M,96M,96M --budget 160M --settle 15s \
            --together 10s --more 5s --alone 1s
        script pipeline $small $models --sizes 96M,96M,96M --budget 160M
        script first $small --programs app --piece 40M --sizes 96M,128M --budget 160M --thinks 300ms,1s --together 10s
    }
else
    script interactive
    script batch
    script pipeline
    script first
fi
# shellcheck disable=SC2086
script overhead ${simcuda:+--turn 5ms --rounds 6 --budget 512M --only launch-1,launch-8,graph-20} $options
# shellcheck disable=SC2086
script latency ${workloads:+--workloads "$workloads"} ${simcuda:+--programs app --window 300ms}
# shellcheck disable=SC2086
script working ${simcuda:+--programs app --link-bytes 32M --link-rounds 1 --pool 64M --piece 4M --touch 8M \
    --hidden 8M --decoder 56M --budget 96M --beside-budget 72M --hidden-budget 44M --quantum 100ms --warm 1s --block 500ms --found 1s} $options
# shellcheck disable=SC2086
script multi ${simcuda:+--link-bytes 32M --link-rounds 1 --programs app --piece 8M \
    --decoder 32M --cnn 32M --kernel 32M --pair-budget 64M --warm 300ms --block 400ms --rounds 1 --turns 100ms} $options
# shellcheck disable=SC2086
script mixes ${simcuda:+--card 64M --alone 50ms --cells W1-sa,W1-case,W1-now,W1-fit} $options
# shellcheck disable=SC2086
script predict ${simcuda:+--link-bytes 32M --link-rounds 1 --pool 64M --touch 16M --piece 4M --hidden 8M --quantum 100ms \
    --most 5s}
# shellcheck disable=SC2086
script idle ${simcuda:+--size 4M --stretch 1 --rounds 3}
# shellcheck disable=SC2086
# shellcheck disable=SC2086
script models --parts decode,train,resident ${simcuda:+--layer 4M --decode 96M/64M --train 96M/64M --resident 96M \
    --activation 2M --workspace 4M --host 16M --warm 2s --rounds 3 --repeats 1}
bench hash "$build/bench/hash" ${simcuda:+--bytes 128M --rounds 2}
bench sched "$build/bench/sched"
bench plan "$build/bench/plan"
bench gate "$build/bench/gate"
bench disk "$build/bench/disk" --dir "$disk"
finish
[ "$failed" -eq 0 ]
