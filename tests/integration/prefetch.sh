#!/bin/sh
# Memory that is expected on the GPU, or asked for, comes before its program's turn.
. "$(dirname "$0")/lib.sh"

# mux-ctl prefetch: memory that was swapped comes to the GPU, though nobody expects its program, as far as there is room that
# nobody needs, and one line says what came and why not more; mux-ctl run --weight.
part asked
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

# A switch is called off for a program that goes first: what was being brought in stops coming, the better one is brought in, and
# every byte of all of them is right, with tiers below pinned memory as well.
part overtaken
mkdir "$dir/disk"
export SIMCUDA_COPY_RATE=$((120 / shrink))M
start_daemon --slice 200ms --pinned 288M --paged 64M --disk "$dir/disk:512M" --best-class latency --log-level debug
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs 12 --iterations 2 --seed "$i" --until "$dir/enough"
done
# It is idle for longer than a turn, and comes back at any point of a switch.
export GPUMUX_CLASS=latency
app better linked --bytes 96M --allocs 12 --iterations 2 --pause 700 --seed 9 --until "$dir/enough"
unset GPUMUX_CLASS
await_ready better
better=$(pid_of better)

# Somebody else is on his way to the GPU, and right after that the better one is: nobody was let in between.
is_overtaken() {
    awk -v better="(pid $better):" '
        / loading -> paused$/ { dropped = NR }
        / loading -> running$/ { dropped = 0 }
        / paused -> loading$/ && index($0, better) && dropped { found++; dropped = 0 }
        END { exit found < 3 }' "$dir/daemon.out"
}
within "$patience" is_overtaken || fail "no switch was called off for the better one"
touch "$dir/enough"
expect_pass app1 app2 app3 better
expect_switches 4
expect_empty
stop_daemon
unset SIMCUDA_COPY_RATE

need_size

# Three programs in turn, none of which rests, with room on the GPU for one and two thirds. While one computes, what is left of
# that room is made the next one's: its switch then moves no more than what has no place before its turn.
part turns
# Of each switch, the MiB that came in.
switches_in() {
    sed -n 's/.*MiB out, \([0-9]*\) in, at .*/\1/p' "$dir/daemon.out"
}
has_twelve() {
    [ "$(switches_in | wc -l)" -ge 12 ]
}

start_daemon --pinned 512M --rule 'command=* class=batch' --slice 175ms --log-level debug # turns of 700 ms
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 1 --seed "$i" --until "$dir/enough"
done
within "$patience" has_twelve || fail "no more than $(switches_in | wc -l) switches"
switches_in | sed -n 5,12p > "$dir/in" # the first ones fill
touch "$dir/enough"
expect_pass app1 app2 app3
say "switches 5 to 12 brought $(tr '\n' ' ' < "$dir/in")MiB"
expect_empty
stop_daemon
# 160 MiB hold one program of 96 and two thirds of the next.
[ "$(grep -cx 32 "$dir/in")" -ge 6 ] || fail "the room on the GPU was not the next one's"

# Programs that rest between their requests: while one computes and nobody waits, the memory of the one that is expected next is
# brought up from paged memory, so that its request finds it near.
part idle
start_daemon --pinned 288M --paged 512M --slice 10s --log-level debug
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 6 --pause 1500 --seed "$i" \
        --until "$dir/enough"
    sleep 0.35
done

has_risen() {
    take_status
    [ "$(json_after moved paged_to_pinned_bytes "$dir/status.json")" -gt 0 ]
}
within "$patience" has_risen || fail "nothing came up from paged memory"
# Three times at least: of each program's first two requests nothing is known yet.
has_staged() {
    [ "$(grep -c 'staging for app ' "$dir/daemon.out")" -ge 3 ]
}
within "$patience" has_staged # told below
touch "$dir/enough"
for i in 1 2 3 4; do expect_pass "app$i"; done
staged=$(grep -c 'staging for app ' "$dir/daemon.out")
say "staged $staged times for the one that was expected"
[ "$staged" -ge 3 ] || fail "nothing was staged for programs that rest"
expect_empty
stop_daemon
