#!/bin/sh
# sh bench/pictures.sh [BUILD]: makes the pictures of README.md anew, bench/pictures/*.svg: `mux-ctl top` as it looks on a terminal
# of 80x24 over a real daemon and programs on simcuda, and a figure of bench/results/latency.txt. Needs tmux, python3, and a
# build with tests; half a minute.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
build=$(cd "$build" && pwd) || exit 1
out=$root/bench/pictures
export PYTHONDONTWRITEBYTECODE=1

die() {
    echo "pictures: $*" >&2
    exit 1
}

for tool in tmux python3; do command -v $tool > /dev/null || die "there is no $tool"; done
[ -x "$build/tests/programs/gm_worker" ] || die "$build has no tests/programs/gm_worker: sh tests/run.sh --quick builds it"
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-pictures.XXXXXX") || exit 1
pids=
end_all() {
    tmux -L pictures kill-server 2> /dev/null
    [ -z "$pids" ] || kill $pids 2> /dev/null
    wait
    rm -rf "$dir"
}
trap end_all EXIT
trap 'exit 1' INT TERM HUP

mkdir "$dir/sim" "$dir/run"
unset GPUMUX_LOG LD_PRELOAD TMUX NO_COLOR
export SIMCUDA_DIR="$dir/sim" SIMCUDA_MEMORY=2G GPUMUX_SOCKET="$dir/gpumux.sock" GPUMUX_RUN_DIR="$dir/run" TMUX_TMPDIR="$dir"
export LD_LIBRARY_PATH="$build/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$build/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 640M --pinned 1G --slice 1s > "$dir/daemon.out" 2>&1 & pids=$!
for try in $(seq 100); do "$build/daemon/mux-ctl" ps -q > /dev/null 2>&1 && break; sleep 0.1; done

# program NAME CLASS ARGUMENT...: gm_worker under that name.
program() {
    cp "$build/tests/programs/gm_worker" "$dir/$1"
    as=$1 class=$2
    shift 2
    GPUMUX_CLASS=$class LD_PRELOAD="$build/shim/libgpumux.so" "$dir/$as" --seconds 600 --iterations 1000000 "$@" > "$dir/$as.out" 2>&1 & pids="$pids $!"
}
program chat interactive --mode readonly --bytes 64M --pause 600
program train batch --mode verify --bytes 320M
program render batch --mode verify --bytes 288M
program tune batch --mode verify --bytes 192M
program embed auto --mode readonly --bytes 64M --pause 1500
sleep 3
tmux -L pictures -f /dev/null new-session -d -x 80 -y 24 "env LC_ALL=C.UTF-8 TERM=screen-256color '$build/daemon/mux-ctl' top --delay=500ms" ||
    die "tmux does not start"
sleep 14
"$build/daemon/mux-ctl" pause --command=tune > /dev/null || die "tune cannot be paused"
sleep 1
# A moment in which somebody works and something moves.
for try in $(seq 200); do
    tmux -L pictures capture-pane -e -p > "$dir/screen" || die "no screen: $(cat "$dir/daemon.out")"
    sed 's/\x1b\[[0-9;]*m//g' "$dir/screen" > "$dir/plain"
    grep -q 'works: [^n]' "$dir/plain" && grep -Eq ' in +([1-9]|0\.[1-9])' "$dir/plain" && grep -q 'embed .*idle' "$dir/plain" && break
    sleep 0.1
done
grep -q train "$dir/plain" || die "the screen has no programs: $(cat "$dir/plain" "$dir/daemon.out")"
mkdir -p "$out"
python3 "$root/bench/pictures.py" screen 80 24 < "$dir/screen" > "$dir/top.svg" && mv "$dir/top.svg" "$out/top.svg" || die "no picture of top"
python3 "$root/bench/pictures.py" latency "$root/bench/results/latency.txt" > "$dir/latency.svg" && mv "$dir/latency.svg" "$out/latency.svg" ||
    die "no figure"
ls -l "$out"
