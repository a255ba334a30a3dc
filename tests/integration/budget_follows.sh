#!/bin/sh
# A budget that was not given follows what the GPU has. The daemon starts while another program holds most of the GPU;
# when that ends, programs get the rest. When one takes memory again the budget goes down, but never below what a
# program has been given, and up again after it. Log and status tell of each change, once.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
MiB=$((1 << 20))

# budget_is MIB: or up to 6 less, as programs take some memory beside what they ask for.
budget_is() {
    is_up && [ "$(gpu budget_bytes)" = "$(gpu usable_bytes)" ] && [ "$(gpu budget_bytes)" -le $(($1 * MiB)) ] &&
        [ "$(gpu budget_bytes)" -ge $((($1 - 6) * MiB)) ]
}
# expect_budget MIB WHEN
expect_budget() {
    within "$patience" budget_is "$1" || fail "$2: the budget is $(($(gpu budget_bytes) / MiB)) MiB, not $1"
}
changes() {
    grep -c 'the budget is .* MiB now' "$dir/daemon.out"
}

# The device has 1024 MiB, of which 64 stay free for contexts: 1024 - 600 - 64.
native before linked --bytes 600M --seed 1 --go "$dir/go.before"
await_ready before
spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --pinned 512M --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
expect_budget 360 "beside a program of 600 MiB"
"$ctl" status > "$dir/table.out"
grep -q '^  budget  3.. MiB now, at most 960 MiB: ' "$dir/table.out" || fail "status: $(cat "$dir/table.out")"
touch "$dir/go.before"
expect_pass before
expect_budget 960 "after its end"
app large linked --bytes 800M --iterations 1 --seed 2
expect_pass large

# What it had is cached, and must not be where the other is to be.
is_trimmed() {
    is_up && [ "$(gpu used_bytes)" = 0 ] && [ "$(gpu cached_bytes)" = 0 ]
}
"$ctl" trim > "$dir/trim.out" || fail "mux-ctl trim ended with $?"
within "$patience" is_trimmed || fail "$(gpu cached_bytes) bytes are cached"

# An app is there while another program takes memory, and gives it back.
app app linked --bytes 200M --iterations 10 --seed 3 --go "$dir/go.app"
await_ready app
native beside linked --bytes 600M --seed 4 --go "$dir/go.beside"
await_ready beside
expect_budget 392 "beside a program of 600 MiB again" # half of the reserve stays free
native more linked --bytes 200M --seed 5 --go "$dir/go.more"
await_ready more
expect_budget 206 "beside 800 MiB: the app has that much"
touch "$dir/go.beside" "$dir/go.more"
expect_pass beside more
expect_budget 960 "after their end"
touch "$dir/go.app"
expect_pass app
expect_empty
expect_budget 960 "when all have ended"
n=$(changes)
[ "$n" -le 8 ] || fail "the log tells $n times of 4 or 5 changes"
stop_daemon
