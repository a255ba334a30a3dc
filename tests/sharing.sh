# What containers.sh and slurm.sh share; sourced by each, with $build and a folder $work of its own: the simulated GPU, a daemon
# that has room for one of two programs, and waiting. Processes started here are the caller's to end: $daemon.
export SIMCUDA_DIR="$work/sim" SIMCUDA_MEMORY=1G
ctl=$build/daemon/mux-ctl
chmod 755 "$work"
mkdir "$work/sim" && chmod 777 "$work/sim" || exit 2

fail() {
    echo "$(basename "$0" .sh): FAILED: $*"
    for log in "$work"/*.log; do [ ! -f "$log" ] || tail -n 5 "$log"; done
    exit 1
}

# within COMMAND...: it succeeds within 30 s.
within() {
    for try in $(seq 150); do
        "$@" && return
        sleep 0.2
    done
    return 1
}

are_there() { [ "$("$ctl" ps -q | wc -l)" = "$1" ]; }

# start_daemon: at $GPUMUX_SOCKET. Programs of any user can reach the GPU.
start_daemon() {
    LD_LIBRARY_PATH=$build/tests/simcuda "$build/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 320M --pinned 512M \
        --slice 300ms >> "$work/gpumuxd.log" 2>&1 &
    daemon=$!
    within answers || fail "the daemon does not start"
    chmod -R a+rwX "$work/sim" # simcuda's files are those of whoever comes first
}

answers() { "$ctl" ps -q > /dev/null 2>&1; }

# both_pass PID PID: two programs end well, and say in 1.out and 2.out that their memory was right.
both_pass() {
    wait "$1" && wait "$2" || fail "a program: $(cat "$work/1.out" "$work/2.out")"
    grep -h '^PASS .*mismatches=0 ' "$work/1.out" "$work/2.out"
}
