#!/bin/sh
# Asking is not work. Programs that ask all the time for events, streams and memory, and have nothing on the GPU, are
# idle: another one has the GPU, and they take no turn from it. One that launches an empty kernel every 30 ms is not
# idle, but loses its turn when others wait, which it would keep for an hour.
. "$(dirname "$0")/lib.sh"
start_daemon --slice 3600s --patience 3600s --idle 400ms
for what in events memory syncs records; do
    app "$what" linked --mode "asks-$what" --bytes 32M --pause 1 --until "$dir/enough"
    await_ready "$what"
done
are_idle() {
    for what in events memory syncs records; do
        has_state "$what" idle || return 1
    done
}
within "$patience" are_idle || fail "who only asks is not idle: $(grep -o '"state": *"[a-z]*"' "$dir/status.json" | tr '\n' ' ')"

# It needs the memory of all of them.
app works linked --bytes 144M --iterations 4 --seed 5
expect_pass works
for what in events memory syncs records; do
    [ "$(turns_of "$what")" -le 1 ] || fail "$what took $(turns_of "$what") turns"
done
touch "$dir/enough"
expect_pass events memory syncs records

rm "$dir/enough"
app empty linked --mode empty --bytes 96M --pause 30 --until "$dir/enough"
await_ready empty
app works linked --bytes 96M --iterations 4 --seed 6
expect_pass works
touch "$dir/enough"
expect_pass empty
expect_empty
stop_daemon
