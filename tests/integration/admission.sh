#!/bin/sh
# --admit fit: a program for which no GPU has room beside the others waits at its start, until one has, or for
# --patience. One that fits passes those of its user that do not, for half of that. A rule says it of programs that ask for a class.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"
unset GPUMUX_CLASS
without_keeper # two programs whose daemon is lost would wait for the next one

# start NAME NEED ARGUMENT...
start() {
    start_name=$1
    GPUMUX_NEED=$(shrunk "$2")
    export GPUMUX_NEED
    shift 2
    app "$start_name" linked --bytes 24M --allocs 1 --iterations 1 --seed 1 "$@"
    unset GPUMUX_NEED
}

# starting: the pids of those that wait
starting() {
    python3 -c 'import json, sys; print(*[one["pid"] for one in json.load(open(sys.argv[1]))["starting"]])' "$dir/status.json"
}

waits() {
    is_up && [ "$(starting)" = "$(for who; do pid_of "$who"; done | tr '\n' ' ' | sed 's/ $//')" ]
}

start_daemon --gpu all --admit fit
start first 100M --bytes 100M --until "$dir/first"
await_ready first
start second 100M --bytes 100M --until "$dir/second"
await_ready second
start third 100M --bytes 100M --until "$dir/third"
within "$patience" waits third || fail "the third does not wait: $(starting)"
start fourth 120M --bytes 120M --until "$dir/third"
within "$patience" waits third fourth || fail "two do not wait: $(starting)"
start small 20M --until "$dir/third"
await_ready small
[ ! -e "$dir/third.ready" ] && [ ! -e "$dir/fourth.ready" ] || fail "one that waits has begun"
"$ctl" status | grep -q "2 programs wait until a GPU has room" || fail "the table does not tell: $("$ctl" status)"
touch "$dir/second"
await_ready third # and then there is no room for the other
within "$patience" waits fourth || fail "the fourth does not wait: $(starting)"
touch "$dir/first"
await_ready fourth
start killed 150M
within "$patience" waits killed || fail "nobody waits"
kill -KILL "$(pid_of killed)"
within "$patience" waits || fail "one that was killed waits"
# Ranks do not wait, nor does a program of which nothing is known.
export LOCAL_RANK=0
start rank 150M
unset LOCAL_RANK
expect_pass rank
touch "$dir/third"
expect_pass first second third fourth small

# When the daemon ends nobody waits for it.
start left 150M --bytes 150M --until "$dir/end"
await_ready left
start right 150M --bytes 150M --until "$dir/end"
await_ready right
start last 150M
within "$patience" waits last || fail "nobody waits"
kill -KILL "$(pid_of daemon)"
touch "$dir/end"
expect_pass last left right

# told_to_wait NAME
told_to_wait() {
    grep -q "(pid $(pid_of "$1"),\? .*waits until a GPU has room" "$dir/daemon.out"
}

# Not for longer than --patience; by a rule those that ask for a class, and no others
start_daemon --gpu all --patience 1s --rule "asks=batch admit=fit"
start left 150M --bytes 150M --until "$dir/again"
await_ready left
start right 150M --bytes 150M --until "$dir/again"
await_ready right
start other 150M
expect_pass other
begun=$(date +%s%N)
GPUMUX_CLASS=batch start last 150M
expect_pass last
told_to_wait last || fail "one that asks for the class was not told to wait"
told_to_wait other && fail "one that asks for no class was told to wait"
[ $((($(date +%s%N) - begun) / 1000000)) -ge 1000 ] || fail "it did not wait"
touch "$dir/again"
expect_pass left right
stop_daemon

# Programs that also wait until MPS has started take the room that they were given: the third waits.
PATH=$BUILD/tests/simcuda:$PATH
export PATH
start_daemon --gpu all --admit fit --space-sharing mps
for one in one two three; do start "$one" 100M --bytes 100M --until "$dir/$one"; done
within "$patience" sh -c "[ \"\$(ls $dir/one.ready $dir/two.ready $dir/three.ready 2> /dev/null | wc -l)\" = 2 ]" ||
    fail "not two of three have begun"
is_up
[ "$(starting | wc -w)" = 1 ] || fail "not one waits: $(starting)"
for one in one two three; do touch "$dir/$one"; done
expect_pass one two three
