#!/bin/sh
# --oversize host with a tier below pinned memory: a large program cannot borrow the pinned memory through which what
# others have in that tier comes back. It is refused the part that is too much, and they all go on.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

is_paged() {
    is_up && [ "$(gpu_tier paged_used_bytes)" -gt 0 ] && [ "$(app_number "$(pid_of paged)" resident_bytes)" = 0 ] &&
        [ "$(app_number "$(pid_of paged)" pinned_bytes)" -lt "$(app_number "$(pid_of paged)" total_bytes)" ]
}

# leaves_alone: those which pushed it out are gone, and the GPU is free.
leaves_alone() {
    is_up && [ "$(apps)" = 1 ] && [ "$(gpu_tier gpu_bytes)" = 0 ]
}

# round N: the large program asks for 130 MiB N times, and all but the first would be in pinned memory.
round() {
    rm -f "$dir"/go.*
    start_daemon --oversize host --pinned 288M --paged 512M --slice 300ms
    app paged linked --bytes 24M --allocs 1 --iterations 3 --seed 1 --go "$dir/go.paged"
    await_ready paged
    for i in 2 3; do
        app "push$i" linked --bytes 152M --allocs 1 --iterations 100000 --seed "$i"
        await_ready "push$i"
    done
    within "$patience" is_paged || fail "nothing of the idle program is in paged memory"
    for i in 2 3; do kill -KILL "$(pid_of "push$i")"; done
    within "$patience" leaves_alone || fail "$(apps) apps, $(gpu_tier gpu_bytes) bytes on the GPU"
    is_paged || fail "what was in paged memory came back by itself"

    app large linked --bytes "$(($1 * 130))M" --allocs "$1" --iterations 3 --seed 4 --go "$dir/go.large"
    within "$patience" is_ready large || fail "large neither got its memory nor was refused"
    touch "$dir/go.paged"
    await paged
    expect_pass paged
    touch "$dir/go.large"
    await large
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*" error 2 CUDA_ERROR_OUT_OF_MEMORY") say "large: $line" ;;
    *) fail "large ended with $code: $line" ;;
    esac
    expect_empty
    stop_daemon
}

round 2
round 3
