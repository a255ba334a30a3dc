#!/bin/sh
# Programs of one group run and pause together. Two that wait for each other on the GPU, and fit only without a third,
# end: on one GPU, and each on a GPU of its own. What is set for one holds for both. Together they get the budget once.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"
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
    app other proc --bytes 96M --iterations 10 --seed 3 --until "$dir/enough"
    CUDA_VISIBLE_DEVICES=1 app beside dlsym --bytes 96M --iterations 10 --seed 4 --until "$dir/enough"
    await_ready other
    await_ready beside
    take_status
    before=$(gpu switches)
    member a 0 --mode tied --bytes $((72 * (second + 1)))M --iterations 8 --signal "$dir/tie" --seed 1
    member b "$second" --mode tied --bytes $((72 * (second + 1)))M --iterations 8 --signal "$dir/tie" --seed 2
    await_ready a
    await_ready b
    looks=0
    while ! has_ended a && ! has_ended b; do
        if are_apart && turns=$(their_turns) && are_apart && [ "$(their_turns)" = "$turns" ]; then
            fail "one of the group runs without the other: $(app_of "$(pid_of a)") $(app_of "$(pid_of b)")"
        fi
        looks=$((looks + 1))
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
member a 0 --bytes 24M --iterations 10 --seed 1 --until "$dir/end"
member b 1 --bytes 24M --iterations 10 --seed 2 --until "$dir/end"
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
