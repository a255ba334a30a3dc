#!/bin/sh
# Unchanged memory is not copied out again. Two programs that only read take turns: after the first round less than a
# twentieth of what moved out before. Programs that change one byte in each 2 MiB, also in memory that is all zero,
# verify all of it; what is zero leaves no copy. The same with too little pinned memory for shadows, and
# where the GPU does not run the kernel.
. "$(dirname "$0")/lib.sh"
export SIMCUDA_NO_COUNTERS=1 # trials move memory, too

switches_now() {
    is_up && [ "$(gpu switches)" -ge "$1" ]
}

# turns N: N more switches.
turns() {
    take_status
    turns_until=$(($(gpu switches) + $1))
    within "$patience" switches_now "$turns_until" || fail "$(gpu switches) switches, $turns_until expected"
}

# run_two MODE BYTES: both programs take turns until each had all of its memory out; of what left the GPU in 10 turns
# since, $out bytes were copied, $clean were unchanged and $zero were zero.
run_two() {
    take_status
    first_out=$(gpu bytes_out)
    app one linked --mode "$1" --bytes "$2" --allocs 3 --iterations 4 --seed 1 --until "$dir/enough"
    app two linked --mode "$1" --bytes "$2" --allocs 2 --iterations 4 --seed 2 --until "$dir/enough"
    await_ready one
    await_ready two
    turns 6
    before_out=$(gpu bytes_out) first=$((before_out - first_out)) before_clean=$(gpu bytes_clean) before_zero=$(gpu bytes_zero)
    turns 10
    out=$(($(gpu bytes_out) - before_out))
    clean=$(($(gpu bytes_clean) - before_clean))
    zero=$(($(gpu bytes_zero) - before_zero))
    say "$1: of what left the GPU in 10 turns $((out >> 20)) MiB were copied, $((clean >> 20)) were unchanged," \
        "$((zero >> 20)) zero; before $((first >> 20)) MiB were copied;" \
        "shadows $(($(gpu_tier pinned_shadow_bytes) >> 20)) MiB"
    : > "$dir/enough"
    expect_pass one two
    rm "$dir/enough"
    expect_empty
}

start_daemon --log-level debug
run_two readonly 96M
grep -q 'not copied out [1-9][0-9]* unchanged and 0 zero' "$dir/daemon.out" || fail "the log does not say it"
"$ctl" status | grep -q '^          not copied out: .* unchanged, .* zero$' || fail "the table does not say it"
[ "$((20 * out))" -lt "$clean" ] || fail "$out bytes of unchanged memory were copied, $clean were not"
[ "$(gpu bytes_hashed)" -gt 0 ] || fail "nothing was hashed"
run_two byte 96M
[ "$out" -gt 0 ] || fail "nothing of what had changed was copied"
run_two zeros 96M
[ "$zero" -gt 0 ] || fail "no chunk was all zero"
stop_daemon

# No room for shadows: what is beyond the budget just fits.
start_daemon --pinned 96M
run_two byte 90M
run_two readonly 90M
! grep -q 'switch [0-9]* to app' "$dir/daemon.out" || fail "switches are in the log at the default level"
stop_daemon

# The kernel is refused: everything is copied, and one line says so.
if [ "${GM_LINKED:-}" != 1 ]; then
    export SIMCUDA_FAIL=cuLaunchKernel:1
    start_daemon
    unset SIMCUDA_FAIL
    [ "$(grep -c 'whether it has changed or not' "$dir/daemon.out")" = 1 ] || fail "the log does not tell"
    run_two byte 96M
    [ "$clean" = 0 ] || fail "unchanged, without a hash"
    grep -q '"is_hashing":false' "$dir/status.json" || grep -q '"is_hashing":	false' "$dir/status.json" ||
        fail "status says that it hashes"
    stop_daemon
fi
