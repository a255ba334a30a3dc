#!/bin/sh
# mux-ctl prefetch: memory that was swapped comes to the GPU, though nobody expects its program, as far as there is room that
# nobody needs, and one line says what came and why not more; mux-ctl run --weight.
. "$(dirname "$0")/lib.sh"
start_default
app idle linked --bytes 96M --iterations 2 --seed 1 --go "$dir/go"
await_ready idle
app busy linked --bytes 96M --iterations 4 --seed 2 --until "$dir/enough"
await_ready busy
on_gpu() {
    is_up && [ "$(app_number "$(pid_of idle)" resident_bytes)" "$1" "$2" ]
}
whole=$((96 * 1048576 / shrink))
within "$patience" on_gpu -lt $whole || fail "nothing of it was swapped"

# there is no room for all of it
"$ctl" prefetch "$(pid_of idle)" > "$dir/said" 2>&1 || fail "prefetch: $(cat "$dir/said")"
say "$(cat "$dir/said")"
grep -q ' came to the GPU; .* have no room there that nobody needs (.* are free): they come when there is$' "$dir/said" ||
    fail "it does not say why: $(cat "$dir/said")"
has_state busy running || fail "somebody made way: $(app_of "$(pid_of busy)")"

# who is evicted stays away
"$ctl" evict "$(pid_of idle)" > "$dir/said" 2>&1 || fail "evict: $(cat "$dir/said")"
touch "$dir/enough"
expect_pass busy
"$ctl" prefetch "$(pid_of idle)" > "$dir/said" 2>&1 || fail "prefetch: $(cat "$dir/said")"
grep -q "^0 came to the GPU; pid $(pid_of idle) is evicted: mux-ctl resume $(pid_of idle) first\$" "$dir/said" || fail "$(cat "$dir/said")"
"$ctl" resume "$(pid_of idle)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"

# now there is room
"$ctl" prefetch "$(pid_of idle)" > "$dir/said" 2>&1 || fail "prefetch: $(cat "$dir/said")"
say "$(cat "$dir/said")"
grep -q ' came to the GPU; all of 1 program is there$' "$dir/said" || fail "$(cat "$dir/said")"
within "$patience" on_gpu -eq $whole || fail "it is not on the GPU"
has_state idle idle || fail "it has a turn that it did not want: $(app_of "$(pid_of idle)")"
"$ctl" prefetch 1 > "$dir/said" 2>&1 && fail "pid 1 was fetched"
grep -q '^mux-ctl: prefetch: pid 1 is no program that shares the GPU: mux-ctl ps lists them$' "$dir/said" || fail "$(cat "$dir/said")"
touch "$dir/go"
expect_pass idle

# --weight is the program's own wish, which only an administrator may give more than 1
spawn light env GPUMUX_LIB="$shim" "$ctl" run --weight 0.5 -- "$(worker linked)" --bytes 24M --iterations 2 --until "$dir/light" \
    --ready "$dir/light.ready"
await_ready light
take_status
app_has "$(pid_of light)" '"weight":0.5,' || fail "run --weight: $(app_of "$(pid_of light)")"
touch "$dir/light"
expect_pass light
"$ctl" run --weight 20 -- true > "$dir/said" 2>&1 && fail "a weight of 20 was taken"
grep -q '^mux-ctl: --weight: "20" is out of range' "$dir/said" && [ "$(wc -l < "$dir/said")" = 1 ] || fail "$(cat "$dir/said")"
expect_empty
stop_daemon
