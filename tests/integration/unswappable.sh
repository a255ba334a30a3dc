#!/bin/sh
# Memory that stays the driver's is counted by kind: managed, arrays, of graphs, plain. What graphs do not use any
# more is given back when the program is paused, and it goes on all the same.
. "$(dirname "$0")/lib.sh"

number_of() {
    is_up && app_number "$(pid_of holder)" "$1"
}

# is_at KEY BYTES
is_at() {
    is_up && [ "$(app_number "$(pid_of holder)" "$1")" = "$2" ]
}

has_asked() {
    [ -f "$dir/signal.asked" ] || has_ended holder
}

native alone linked --mode unswappable --bytes 128M
expect_pass alone
start_daemon
piece=$((128 * 1024 * 1024 / 8 / shrink / 2097152 * 2097152))
app holder linked --mode unswappable --bytes 128M --signal "$dir/signal"
await_ready holder
within "$patience" is_at managed_bytes $piece || fail "managed: $(number_of managed_bytes), not $piece"
within "$patience" is_at array_bytes $piece || fail "arrays: $(number_of array_bytes), not $piece"
within "$patience" is_at graph_bytes $piece || fail "of graphs: $(number_of graph_bytes), not $piece"
[ "$(number_of real_bytes)" = 0 ] || fail "there is none: $(cat "$dir/status.json")"
[ "$(number_of unswappable_bytes)" = $((3 * piece + $(number_of small_bytes))) ] || fail "the sum is wrong"
[ "$(number_of total_bytes)" = $piece ] || fail "it is counted as gpumux's own: $(number_of total_bytes)"
"$ctl" status > "$dir/table.out" && grep -q ' MiB unswappable' "$dir/table.out" || fail "the table does not tell"

"$ctl" pause "$(pid_of holder)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state holder paused || fail "it is not paused"
within "$patience" is_at graph_bytes 0 || fail "of graphs: $(number_of graph_bytes), trimmed when it was paused"
"$ctl" resume "$(pid_of holder)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
touch "$dir/signal.ask"
within "$patience" has_asked || fail "it does not go on"
! has_ended holder || fail "$(tail -n 1 "$dir/holder.out")"
for key in managed_bytes array_bytes graph_bytes; do
    within "$patience" is_at $key 0 || fail "$key after all was freed: $(number_of $key)"
done
touch "$dir/signal.end"
expect_pass holder

# One that dies with all of it leaves nothing behind, and one with a context of its own loses it with the context.
rm -f "$dir"/signal.*
app holder linked --mode unswappable --bytes 128M --own-context --signal "$dir/signal"
await_ready holder
within "$patience" is_at array_bytes $piece || fail "arrays: $(number_of array_bytes), not $piece"
kill -KILL "$(pid_of holder)"
await holder
expect_empty
stop_daemon
