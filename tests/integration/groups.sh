#!/bin/sh
# Programs of one group, said or found, run and pause together.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"

# Programs of one group run and pause together. Two that wait for each other on the GPU, and fit only without a third, end: on one
# GPU, and each on a GPU of its own. What is set for one holds for both. Together they get the budget once.
part said
export SIMCUDA_DEVICES=2
start_daemon --slice 300ms --gpu 0,1

# member NAME GPU ARGUMENT...: of the group
member() {
    member_name=$1
    export GPUMUX_GROUP=pair CUDA_VISIBLE_DEVICES="$2"
    shift 2
    app "$member_name" linked "$@"
    unset GPUMUX_GROUP CUDA_VISIBLE_DEVICES
}

# Whether one runs while another one of the group waits for its turn.
are_apart() {
    is_up || return 1
    for apart_name in a b; do
        has_ended "$apart_name" && return 1
    done
    { app_has "$(pid_of a)" '"state":"running"' && app_has "$(pid_of b)" '"state":"\(waiting\|loading\)"'; } ||
        { app_has "$(pid_of b)" '"state":"running"' && app_has "$(pid_of a)" '"state":"\(waiting\|loading\)"'; }
}

# How many turns both have had. A switch may be seen half way, but not twice.
their_turns() {
    echo "$(app_number "$(pid_of a)" switches) $(app_number "$(pid_of b)" switches)"
}

for second in 0 1; do
    rm -f "$dir/tie" "$dir/enough"
    app other proc --bytes 96M --iterations 3 --seed 3 --until "$dir/enough"
    CUDA_VISIBLE_DEVICES=1 app beside dlsym --bytes 96M --iterations 3 --seed 4 --until "$dir/enough"
    await_ready other
    await_ready beside
    take_status
    before=$(gpu switches)
    member a 0 --mode tied --bytes $((72 * (second + 1)))M --iterations 5 --signal "$dir/tie" --seed 1
    member b "$second" --mode tied --bytes $((72 * (second + 1)))M --iterations 5 --signal "$dir/tie" --seed 2
    await_ready a
    await_ready b
    looks=0
    while ! has_ended a && ! has_ended b; do
        # One may be held for a moment, as its memory changes places.
        if are_apart && turns=$(their_turns) && sleep 0.2 && are_apart && sleep 0.2 && are_apart && [ "$(their_turns)" = "$turns" ]; then
            fail "one of the group runs without the other: $(app_of "$(pid_of a)") $(app_of "$(pid_of b)")"
        fi
        looks=$((looks + 1))
        sleep 0.2
    done
    say "looked $looks times"
    expect_pass a b
    touch "$dir/enough"
    expect_pass other beside
    take_status
    [ "$(gpu switches)" -gt "$before" ] || fail "nobody took turns"
done

# settings
touch "$dir/tie"
member a 0 --bytes 24M --iterations 3 --seed 1 --until "$dir/end"
member b 1 --bytes 24M --iterations 3 --seed 2 --until "$dir/end"
await_ready a
await_ready b
"$ctl" pause "$(pid_of b)" > "$dir/set.out" || fail "pause: $(cat "$dir/set.out")"
within "$patience" has_state a paused && within "$patience" has_state b paused || fail "one of them is not paused"
app_has "$(pid_of a)" '"group":"pair"' || fail "status does not name the group"
"$ctl" resume "$(pid_of a)" > "$dir/set.out" || fail "resume: $(cat "$dir/set.out")"

# evicted: all of the group, and nobody beside it
app lone linked --bytes 12M --iterations 1 --seed 5 --until "$dir/end"
app other linked --bytes 12M --iterations 1 --seed 6 --until "$dir/end"
await_ready lone
await_ready other
"$ctl" evict "$(pid_of b)" > "$dir/set.out" 2>&1 || fail "evict: $(cat "$dir/set.out")"
grep -q '^[45][0-9] MiB left the GPU; there stay the CUDA contexts of 2 programs (some 500 MiB each)$' "$dir/set.out" ||
    fail "evict of a group said: $(cat "$dir/set.out")"
take_status
for i in a b; do
    app_has "$(pid_of $i)" '"pause":"evicted"' || fail "$i of the group is not evicted: $(app_of "$(pid_of $i)")"
done
app_has "$(pid_of lone)" '"pause":"no"' || fail "evicted beside the group: $(app_of "$(pid_of lone)")"
"$ctl" evict "$(pid_of lone)" > "$dir/set.out" 2>&1 || fail "evict: $(cat "$dir/set.out")"
grep -q 'there stays the CUDA context of 1 program (' "$dir/set.out" && [ "$(wc -l < "$dir/set.out")" = 1 ] || fail "evict of one said: $(cat "$dir/set.out")"
"$ctl" resume --command '*' > "$dir/set.out" || fail "resume: $(cat "$dir/set.out")"
touch "$dir/end"
expect_pass a b lone other

# the budget is that of both
rm "$dir/end"
member a 0 --bytes 96M --iterations 2 --seed 1 --until "$dir/end"
await_ready a
member b 0 --bytes 96M --iterations 2 --seed 2
await b
case $line in
*"error 2 "*) ;;
*) fail "a group larger than the budget was not refused: $line" ;;
esac
touch "$dir/end"
expect_pass a
expect_empty
stop_daemon

# Two jobs of two programs on two GPUs, whose rounds wait on the GPU for each other's, in memory that each has of the other: one
# job by cuIpc*, the other by exported handles. Both jobs do not fit together. Nobody says who belongs together: the daemon sees
# it. Each job runs as one, and both end, in turns. So do two programs that use both GPUs.
part found
export SIMCUDA_DEVICES=2
start_daemon --slice 300ms --gpu 0,1 --place off

# rank JOB NAME DEVICES ARGUMENT...: each job in a way of its own
rank() {
    rank_job=$1
    rank_name=$2
    export CUDA_VISIBLE_DEVICES="$3"
    shift 3
    app "$rank_name" linked --bytes 96M --iterations 5 --signal "$dir/$rank_job" "$@"
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
await_ready a
await_ready b
take_status # it may end before the others are ready
first=$(group_of a)
case $first in *'"pid'*) ;; *) fail "the first job is no group: $(app_of "$(pid_of a)")" ;; esac
[ "$first" = "$(group_of b)" ] || fail "the first job is of several groups: $first, $(group_of b)"
await_ready c
await_ready d
take_status
second=$(group_of c)
say "$first, $second"
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
    sleep 0.2
done
say "looked $looks times, $waits times somebody waited for a GPU"
expect_pass a b c d
take_status
[ "$(gpu switches)" -ge 2 ] || fail "nobody took turns"
expect_empty

# the same of two programs that use both GPUs
before=$(gpu switches)
app e linked --mode devices --bytes 96M --allocs 3 --iterations 2 --seed 5 --until "$dir/enough"
app f proc --mode devices --bytes 96M --allocs 3 --iterations 2 --seed 6 --until "$dir/enough"
await_switches $((before + 2))
expect_pass e f
take_status
[ "$(gpu switches)" -ge $((before + 2)) ] || fail "nobody took turns on both GPUs"
expect_empty
stop_daemon
