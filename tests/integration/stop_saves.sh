#!/bin/sh
# A daemon without a keeper is stopped by SIGTERM while programs are swapped out. What fits onto the GPU, or into host memory that a
# program can map, is brought back first: those programs go on without the daemon and verify every byte. The log
# names the others, and they end with a clean error.
. "$(dirname "$0")/lib.sh"
without_keeper

# start_three SIZE: programs that do not fit into the budget together, all of them filled.
start_three() {
    rm -f "$dir/enough"
    for i in 1 2 3; do
        app "app$i" linked --bytes "$1" --allocs 2 --iterations 3 --seed "$i" --until "$dir/enough"
    done
    for i in 1 2 3; do await_ready "app$i"; done
    await_turns
}

is_swapped_out() {
    is_up && [ "$(gpu_tier pinned_used_bytes)" -gt 0 ]
}

await_turns() {
    within "$patience" is_swapped_out || fail "nothing was swapped out"
}

# expect_saved COUNT: so many go on, and the others are lost; whom the log names, and nobody else, ends with an error.
expect_saved() {
    if [ "${way:-}" = drain ]; then stop_daemon_by_drain; else stop_daemon; fi
    touch "$dir/enough"
    saved=0
    for i in 1 2 3; do
        await "app$i"
        told=$(grep -c "pid $(pid_of "app$i"),.*the daemon stops, and [1-9][0-9]* of [1-9][0-9]* MiB are lost" \
            "$dir/daemon.out")
        case $code,$told,$line in
        0,0,"PASS "*" mismatches=0 "*) saved=$((saved + 1)) ;;
        3,1,*) is_lost || fail "app$i was lost and ended with $code: $line" ;;
        *) fail "$1 to be saved: app$i ended with $code, $told lines in the log: $line" ;;
        esac
    done
    say "$saved saved"
    [ "$saved" = "$1" ] || fail "$saved of 3 programs go on, $1 expected"
    grep -q ": $1 programs go on without gpumux, with all of their memory; lost: $((3 - $1))$" \
        "$dir/daemon.out" || fail "the log does not say how many go on"
}

# The device has room beyond the budget.
start_daemon
start_three 96M
expect_saved 3

# It has not: the rest goes into host frames.
export SIMCUDA_MEMORY="$(shrunk 192M)"
start_daemon
start_three 96M
expect_saved 3

# The same where most memory is cold: it was promised no room on the GPU, and has no place on the host while it is paused.
if [ "$shrink" = 1 ]; then
    start_daemon --slice 200ms --paged 256M
    rm -f "$dir/enough"
    for i in 1 2 3; do
        app "app$i" linked --mode part --bytes 96M --allocs 6 --seed "$i" --until "$dir/enough"
    done
    for i in 1 2 3; do await_ready "app$i"; done
    are_cold() {
        is_up || return 1
        cold=0
        for i in 1 2 3; do
            cold=$((cold + $(app_number "$(pid_of "app$i")" cold_bytes)))
        done
        [ "$cold" -ge $((160 << 20)) ] && [ "$(gpu_tier on_host_bytes)" -gt 0 ] # they fit with 128 of 240
    }
    within "$patience" are_cold || fail "what they do not touch is not cold"
    expect_saved 3
fi

# Without them two fit. --drain does the same as SIGTERM, waits for it, and says what came of it.
drain() {
    "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --drain > "$dir/drained" 2>&1
    drained=$?
    has_ended daemon || within 1 has_ended daemon || fail "the daemon runs on behind --drain"
    cat "$dir/drained"
}
stop_daemon_by_drain() {
    drain
    await daemon
    [ "$code" = 0 ] || fail "the daemon that was drained ended with $code"
}
export SIMCUDA_NO=host-numa
start_daemon
start_three 72M
way=drain expect_saved 2
[ "$drained" = 2 ] || fail "one program of three was lost, and --drain ended with $drained"
grep -q '^2 programs go on without gpumux; 1 lost memory' "$dir/drained" || fail "--drain says: $(cat "$dir/drained")"
unset SIMCUDA_NO
drain
[ "$drained" = 3 ] || fail "nobody is there, and --drain ended with $drained"

# What lies below pinned memory comes back as well.
start_daemon --gpu-budget 96M --pinned 352M --paged 256M
start_three 88M
way=drain expect_saved 3
[ "$drained" = 0 ] || fail "all were saved, and --drain ended with $drained"

# A program that was swapped out and does not answer is lost, and does not hold the others up.
start_daemon
start_three 96M
"$ctl" pause "$(pid_of app3)" || fail "app3 cannot be paused"
is_out() {
    is_up && [ "$(app_number "$(pid_of app3)" resident_bytes)" -lt "$(app_number "$(pid_of app3)" total_bytes)" ]
}
within "$patience" is_out || fail "the others took nothing from app3"
stop app3
stop_daemon
touch "$dir/enough"
kill -CONT "$(pid_of app3)"
expect_pass app1 app2
await app3
is_lost || fail "app3, which was stopped, ended with $code: $line"
grep -q "pid $(pid_of app3),.*the daemon stops, .*: the program does not answer" "$dir/daemon.out" ||
    fail "the log does not name app3"

# One that stood still and has just gone on is none of these.
start_daemon
start_three 96M
"$ctl" pause "$(pid_of app3)" || fail "app3 cannot be paused"
within "$patience" is_out || fail "the others took nothing from app3"
stop app3
is_seen() { is_up && app_has "$(pid_of app3)" '"state":"stopped"'; }
within "$patience" is_seen || fail "app3 is not seen to be stopped: $(app_of "$(pid_of app3)")"
kill -CONT "$(pid_of app3)"
expect_saved 3

# A second signal ends the daemon at once: it says what is lost, not that all were saved, and ends well.
start_daemon
start_three 96M
kill -TERM "$(pid_of daemon)"
kill -INT "$(pid_of daemon)"
await daemon
touch "$dir/enough"
[ "$code" = 0 ] || fail "the daemon that was told twice ended with $code"
grep -q 'stopping at once' "$dir/daemon.out" || fail "the second signal was not taken"
grep -q 'warning: [1-3] programs go on without the daemon: .*lost it$' "$dir/daemon.out" || fail "it does not say what is lost"
! grep -q 'go on without gpumux\|gpumuxd: error:' "$dir/daemon.out" ||
    fail "it says: $(grep 'go on without gpumux\|gpumuxd: error:' "$dir/daemon.out")"
for i in 1 2 3; do await "app$i"; done
