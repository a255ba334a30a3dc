#!/bin/sh
# Programs are paused, resumed and evicted.
. "$(dirname "$0")/lib.sh"
without_keeper

# A paused program gets no GPU time and keeps everything: others use its room, and when it is resumed it goes on with every byte.
# Also when all fit, and with several at once.
part pause
run_of() {
    app_number "$(pid_of "$1")" run_s
}

# grows NAME SINCE: it has run for a tenth of a second since.
grows() {
    is_up && awk -v now="$(run_of "$1")" -v then="$2" 'BEGIN { exit !(now > then + 0.1) }'
}

is_evicted() {
    is_up && evicted=$(app_number "$(pid_of "$1")" resident_bytes) &&
        [ "$evicted" -lt "$(app_number "$(pid_of "$1")" total_bytes)" ]
}

pause() {
    "$ctl" pause "$@" > "$dir/said" 2>&1 || fail "pause $*: $(cat "$dir/said")"
}

resume() {
    "$ctl" resume "$@" > "$dir/said" 2>&1 || fail "resume $*: $(cat "$dir/said")"
}

start_daemon --slice 200ms
app one linked --bytes 96M --allocs 3 --iterations 3 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 2 --iterations 3 --seed 2 --until "$dir/enough"
await_ready one
await_ready two
pause "$(pid_of one)"
within "$patience" has_state one paused || fail "one is not paused: $(app_of "$(pid_of one)")"
ran=$(run_of one)
is_up && app_has "$(pid_of one)" '"paused":true.*"reason":"\(paused\|idle\)"' || fail "why: $(app_of "$(pid_of one)")"
within "$patience" grows two "$(run_of two)" || fail "two gets no GPU time beside a program that is paused"
within "$patience" is_evicted one || fail "what is paused keeps its room"
[ "$(run_of one)" = "$ran" ] || fail "what is paused ran: $ran s, then $(run_of one)"
"$ctl" status > "$dir/table.out" && grep -q ' paused ' "$dir/table.out" || fail "the table does not tell"
pause "$(pid_of one)" # again: nothing new
resume "$(pid_of one)"
within "$patience" grows one "$ran" || fail "what was resumed does not run"
! has_state one paused || fail "one is still paused"
touch "$dir/enough"
expect_pass one two
expect_empty

# With room for all: a paused one stays where it is, and nobody else notices.
rm -f "$dir/enough"
app small linked --bytes 40M --iterations 3 --seed 3 --until "$dir/enough"
app other linked --bytes 40M --iterations 3 --seed 4 --until "$dir/enough"
await_ready small
await_ready other
pause "$(pid_of small)"
within "$patience" has_state small paused || fail "small is not paused"
ran=$(run_of small)
within "$patience" grows other "$(run_of other)" || fail "other does not go on"
[ "$(run_of small)" = "$ran" ] || fail "what is paused ran"
! is_evicted small || fail "what is paused lost memory that nobody needed"

# Both, then all again; one that ends meanwhile takes nothing with it.
pause --user "$(id -u)"
grep -q '^2 programs changed$' "$dir/said" || fail "pause of all said: $(cat "$dir/said")"
within "$patience" has_state other paused || fail "other is not paused"
touch "$dir/enough"
app third linked --bytes 96M --iterations 3 --seed 5
expect_pass third
kill -KILL "$(pid_of small)"
await small
resume --command 'gm_*'
expect_pass other
expect_empty

# --- evicted: its memory leaves the GPU at once, though nobody wants the room ---
evict() {
    "$ctl" evict "$@" > "$dir/said" 2>&1 || fail "evict $*: $(cat "$dir/said")"
}
# says NAME TEXT: that is a part of its reason. Blanks are gone from both.
says() {
    is_up && app_has "$(pid_of "$1")" "\"why\":\"[^\"]*$(echo "$2" | tr -d ' ')"
}
# is_off NAME: none of its memory is on the GPU, and none is kept there for it.
is_off() {
    is_up && [ "$(app_number "$(pid_of "$1")" device_bytes)" = 0 ] && [ "$(gpu used_bytes)" = 0 ] && [ "$(gpu cached_bytes)" = 0 ]
}
rm -f "$dir/enough"
app busy linked --bytes 40M --iterations 3 --seed 6 --until "$dir/enough"
await_ready busy
take_status
free=$(gpu device_free_bytes)
evict "$(pid_of busy)"
grep -q '^4[0-9] MiB left the GPU; there stays the CUDA context of 1 program (some 500 MiB each)$' "$dir/said" || fail "evict said: $(cat "$dir/said")"
within "$patience" is_off busy || fail "evicted, and still on the GPU: $(app_of "$(pid_of busy)")"
[ "$(gpu device_free_bytes)" -ge $((free + 40 * 1024 * 1024)) ] || fail "the GPU has no more free than before"
app_has "$(pid_of busy)" '"pause":"evicted"' && says busy "evicted by $(id -un)" || fail "why? $(app_of "$(pid_of busy)")"
resume "$(pid_of busy)"
within "$patience" grows busy "$(run_of busy)" || fail "what was evicted and resumed does not run"
evict --idle "$(pid_of busy)" # it is at work, and goes on
within "$patience" grows busy "$(run_of busy)" || fail "a program at work was evicted until its next call, and waits"
touch "$dir/enough"
expect_pass busy
expect_empty

# ... until its next call, which an idle one makes later.
app idle linked --bytes 40M --iterations 4 --seed 7 --go "$dir/go.idle"
await_ready idle
within "$patience" has_state idle idle || fail "it is not idle: $(app_of "$(pid_of idle)")"
evict --idle --command 'gm_*'
within "$patience" is_off idle || fail "evicted, and still on the GPU: $(app_of "$(pid_of idle)")"
says idle "evicted by $(id -un), until its next call" || fail "why? $(app_of "$(pid_of idle)")"
touch "$dir/go.idle"
expect_pass idle
expect_empty
stop_daemon

# A program that has nothing to do by the time that it is paused wants no turn: none of its memory is moved to the GPU before it
# asks for it, however much time there is.
part "idle before"
# On a busy machine a program whose work has just ended could be parked, and would want a turn for that.
export SIMCUDA_NO=channels
start_default --idle 2s --best-class latency --log-level debug
(
    export GPUMUX_CLASS=latency
    app first linked --bytes 96M --iterations 4 --seed 1 --go "$dir/go.first" --until "$dir/enough"
)
await_ready first
app still linked --bytes 96M --iterations 4 --seed 2 --go "$dir/go.still"
await_ready still
touch "$dir/go.first" # at once: still is not known to be idle yet

is_away() {
    has_state still idle && has_state first running
}
within "$patience" is_away || fail "still waits for a turn that it has no use for: $(app_of "$(pid_of still)")"
grep -q "app 1 is idle: it was paused" "$dir/daemon.out" || fail "still was idle before it was paused: the test shows nothing"
turns=$(turns_of still)
touch "$dir/enough"
expect_pass first
sleep 1
[ "$(turns_of still)" = "$turns" ] || fail "still was given a turn"
has_state still idle || fail "still is not idle any more"
touch "$dir/go.still"
expect_pass still
[ "$(turns_of still)" -gt "$turns" ] || fail "still had no turn"
expect_empty
stop_daemon
unset SIMCUDA_NO

# A program asks what its pointers are while it is paused and its memory is swapped out: it is answered at once, as for memory
# that never moved, in every way of reaching the driver. Natively it passes the same checks.
part questions

is_evicted() {
    is_up && [ "$(app_number "$(pid_of "$1")" resident_bytes)" -lt "$(app_number "$(pid_of "$1")" total_bytes)" ]
}

has_asked() {
    [ -f "$dir/$1.signal.asked" ] || has_ended "$1"
}

native alone linked --mode pointers --bytes 24M --iterations 2
expect_pass alone
start_daemon --slice 200ms
for way in linked dlsym proc; do
    app "$way" "$way" --mode pointers --bytes 96M --allocs 3 --iterations 3 --seed 1 --signal "$dir/$way.signal"
    await_ready "$way"
    "$ctl" pause "$(pid_of "$way")" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
    within "$patience" has_state "$way" paused || fail "$way is not paused"
    app "other-$way" linked --bytes 120M --iterations 3 --seed 2
    within "$patience" is_evicted "$way" || fail "$way keeps all of its room"
    touch "$dir/$way.signal.ask"
    within "$patience" has_asked "$way" || fail "$way waits for an answer"
    ! has_ended "$way" || fail "$way: $(tail -n 1 "$dir/$way.out")"
    has_state "$way" paused || fail "$way was let go to be answered"
    "$ctl" resume "$(pid_of "$way")" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
    expect_pass "$way" "other-$way"
done
expect_empty

# Threads that ask on and on while it takes turns with others.
app asking linked --mode pointers --bytes 96M --allocs 3 --iterations 6 --seconds 1 --threads 3 --seed 3
app hog linked --bytes 120M --iterations 6 --seconds 1 --seed 4
expect_pass asking hog
expect_empty

# The daemon dies while the program is paused and swapped out: it still gets its answers.
app lost linked --mode pointers --bytes 96M --allocs 3 --iterations 1 --seed 1 --signal "$dir/lost.signal"
await_ready lost
"$ctl" pause "$(pid_of lost)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
app hog linked --bytes 120M --iterations 3 --seed 2
within "$patience" is_evicted lost || fail "lost keeps all of its room"
kill -KILL "$(pid_of daemon)"
await daemon
touch "$dir/lost.signal.ask"
within "$patience" has_asked lost || fail "lost waits for an answer"
[ -f "$dir/lost.signal.asked" ] || fail "lost: $(tail -n 1 "$dir/lost.out")"
