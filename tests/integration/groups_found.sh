#!/bin/sh
# Two jobs of two programs on two GPUs, whose rounds wait on the GPU for each other's, in memory that each has of the
# other: one job by cuIpc*, the other by exported handles. Both jobs do not fit together. Nobody says who belongs together: the daemon sees it. Each job runs as one, and
# both end, in turns. So do two programs that use both GPUs.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"
start_daemon --slice 300ms --gpu 0,1 --place off

# rank JOB NAME DEVICES ARGUMENT...: each job in a way of its own
rank() {
    rank_job=$1
    rank_name=$2
    export CUDA_VISIBLE_DEVICES="$3"
    shift 3
    app "$rank_name" linked --bytes 96M --iterations 8 --signal "$dir/$rank_job" "$@"
    unset CUDA_VISIBLE_DEVICES
}

group_of() {
    app_of "$(pid_of "$1")" | grep -o '"group":"[^"]*"' | sort -u
}

# are_apart NAME NAME: one of them runs on its GPU while the other one waits.
are_apart() {
    is_up || return 1
    for apart_name; do
        has_ended "$apart_name" && return 1
    done
    { has_now "$1" running && has_now "$2" '\(waiting\|loading\)' && ! has_now "$2" running; } ||
        { has_now "$2" running && has_now "$1" '\(waiting\|loading\)' && ! has_now "$1" running; }
}
has_now() {
    app_has "$(pid_of "$1")" "\"state\":\"$2\""
}

rank one a 0,1 --mode ranks --seed 1
rank one b 1,0 --mode ranks --seed 2
rank two c 0,1 --mode imports --seed 3
rank two d 1,0 --mode imports --seed 4
for name_of in a b c d; do
    await_ready "$name_of"
done
take_status
first=$(group_of a)
second=$(group_of c)
say "$first, $second"
case $first in *'"pid'*) ;; *) fail "the first job is no group: $(app_of "$(pid_of a)")" ;; esac
[ "$first" = "$(group_of b)" ] || fail "the first job is of several groups: $first, $(group_of b)"
[ "$second" = "$(group_of d)" ] || fail "the second job is of several groups: $second, $(group_of d)"
[ "$first" != "$second" ] || fail "both jobs are one group: $first"
looks=0
waits=0
while ! has_ended a && ! has_ended c; do
    for pair in 'a b' 'c d'; do
        # shellcheck disable=SC2086
        are_apart $pair && { sleep 0.1; are_apart $pair; } && { sleep 0.1; are_apart $pair; } &&
            fail "one of a job runs without the other: $(app_of "$(pid_of "${pair% *}")") $(app_of "$(pid_of "${pair#* }")")"
    done
    grep -q 'waits for GPU' "$dir/status.json" && waits=$((waits + 1))
    looks=$((looks + 1))
done
say "looked $looks times, $waits times somebody waited for a GPU"
expect_pass a b c d
take_status
[ "$(gpu switches)" -ge 2 ] || fail "nobody took turns"
expect_empty

# the same of two programs that use both GPUs
before=$(gpu switches)
app e linked --mode devices --bytes 96M --allocs 3 --iterations 3 --seed 5
app f proc --mode devices --bytes 96M --allocs 3 --iterations 3 --seed 6
expect_pass e f
take_status
[ "$(gpu switches)" -ge $((before + 2)) ] || fail "nobody took turns on both GPUs"
expect_empty
stop_daemon
