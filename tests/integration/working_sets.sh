#!/bin/sh
# Programs of which a turn touches a part: those whose parts fit together run together, and nothing moves. Memory that is
# touched again is there and right, wherever it was; a program that grows beside them does not wait for what is cold.
. "$(dirname "$0")/lib.sh"
need_size

# still NAME...: all of them run, nothing has switched for a second, and each of them has gone on.
still() {
    is_up || return 1
    still_switches=$(gpu switches)
    sleep 1
    is_up && [ "$(gpu switches)" = "$still_switches" ] || return 1
    for still_name; do
        has_state "$still_name" running || return 1
    done
}

# Two of 128 MiB on 160, of which each works on 16; the memory of all is right at the end.
# Pinned memory has room for 288 MiB beside the window.
start_daemon --slice 200ms --log-level debug --pinned 512M --paged 256M
app part1 linked --mode part --bytes 128M --allocs 8 --seed 1 --until "$dir/enough"
app part2 linked --mode lasts --signal "$dir/lasts" --bytes 128M --allocs 8 --seed 2 --until "$dir/enough"
await_ready part1
await_ready part2
within "$patience" still part1 part2 || fail "programs whose needs fit do not run together"
# All that they do not touch, but for what the check brought back: on a busy machine it may see the link before a window
# has ended.
is_cold() {
    back=$(sed -n "s/.*pid $(pid_of "$1"), .*memory on the host is used (.*): \([0-9]*\) MiB.*/\1/p" "$dir/daemon.out" | awk '{ sum += $1 } END { print sum + 0 }')
    cold=$(($(app_number "$(pid_of "$1")" cold_bytes) >> 20))
    [ "$cold" -le 112 ] && [ "$cold" -ge $((112 - back)) ]
}
are_cold() {
    is_up && is_cold part1 && is_cold part2
}
within "$patience" are_cold || fail "not what they do not touch is cold"
needed=$(($(app_number "$(pid_of part1)" needed_bytes) + $(app_number "$(pid_of part2)" needed_bytes)))
[ "$needed" -le $((160 << 20)) ] || fail "they need $needed bytes, and run together"
before=$(($(gpu bytes_in) + $(gpu bytes_out)))
sleep 2
is_up && [ $(($(gpu bytes_in) + $(gpu bytes_out))) = "$before" ] || fail "memory moves though what is needed fits"

# Beside the second a kernel begins that uses 16 MiB more and does not end: they stay warm, though no launch names them
# again in all these windows.
touch "$dir/lasts"
begins() { is_up && [ "$(app_number "$(pid_of part2)" total_bytes)" -ge $((144 << 20)) ]; }
within "$patience" begins || fail "the kernel does not begin"
sleep 3
is_up
are_cold || fail "memory is cold that a kernel uses, or not what nobody touches"

# Beside them one that grows to 96 MiB in steps of 8, each 100 ms: it is there soon, and then works on all of it.
begun=$(date +%s)
app grows linked --mode grows --bytes 96M --allocs 12 --hold 100 --seconds 1 --seed 7
await_ready grows
say "grown after $(($(date +%s) - begun)) s"
[ $(($(date +%s) - begun)) -le 12 ] || fail "a program that grows waits for what is cold"
expect_pass grows

# One that is larger than the GPU by choice needs the pinned memory in which cold memory lies: that comes back.
GPUMUX_OVERSIZE=host app large linked --bytes 240M --allocs 8 --iterations 2 --seed 8
expect_pass large
touch "$dir/enough"
expect_pass part1 part2
expect_empty

# Who goes over to other memory finds it as it was.
rm "$dir/enough"
for i in 1 2; do
    app "moves$i" linked --mode moves --hold 1500 --bytes 128M --allocs 8 --seconds 5 --seed "$i"
done
expect_pass moves1 moves2
expect_empty
stop_daemon
