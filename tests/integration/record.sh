#!/bin/sh
# --record: what the scheduler is told comes into the file within a second or so, and decides the same when it is
# replayed. What is in the file's place is kept, or the daemon does not start.
. "$(dirname "$0")/lib.sh"
replay=$BUILD/tests/sim/sim_sched
trace=$dir/trace

replayed() {
    "$replay" --replay "$1" > "$dir/replay.out" 2>&1 || fail "the trace is not replayed: $(tail -n 1 "$dir/replay.out")"
}

has_lines() {
    [ "$(grep -c "$1" "$trace")" -ge "$2" ]
}

start_daemon --slice 100ms --record "$trace"
within "$patience" has_lines '^gpumux-sched-trace 2 max_apps=256 budget=.* levels=3 allotment_ns=200000000 slice_ns=100000000 ' 1 ||
    fail "no header: $(head -n 1 "$trace")"
[ "$(stat -c %a "$trace")" = 600 ] || fail "the trace has mode $(stat -c %a "$trace")"
app one linked --bytes 96M --allocs 3 --seconds 3 --iterations 5 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 3 --seconds 3 --iterations 5 --seed 2 --until "$dir/enough"
app three linked --bytes 30M --seconds 3 --iterations 5 --pause 200 --seed 3
await_ready one
await_ready two
"$ctl" set "$(pid_of one)" class=batch weight=0.5 share=50% > /dev/null || fail "set failed"
"$ctl" pause "$(pid_of two)" > /dev/null || fail "pause failed"
within "$patience" has_lines ' set [0-9]* class=auto weight=1000 share=1000 paused=1$' 1 || fail "the pause does not come into the trace"
"$ctl" resume "$(pid_of two)" > /dev/null || fail "resume failed"
await_switches 2
expect_pass one two three
expect_switches 2
expect_empty
stop_daemon
grep -q ' set [0-9]* class=batch weight=500 share=500 paused=0$' "$trace" || fail "mux-ctl set is not in the trace"
[ "$(grep -c ' join ' "$trace")" = 3 ] && [ "$(grep -c ' leave ' "$trace")" = 3 ] || fail "who came and went is not in the trace"
replayed "$trace"
say "$(wc -l < "$trace") lines; $(grep -h decisions "$dir/replay.out")"

# Again: the older trace steps aside. A daemon that is killed leaves a trace that can be replayed.
start_daemon --record "$trace"
app four linked --bytes 40M --iterations 2 --seed 4
expect_pass four
within "$patience" has_lines ' leave ' 1 || fail "what happened is not written though the daemon goes on"
kill -KILL "$(pid_of daemon)"
await daemon
grep -q ' slice_ns=50000000 ' "$trace" || fail "the trace is not the new one"
replayed "$trace"
[ "$(grep -c ' join ' "$trace.old")" = 3 ] || fail "the older trace was not kept"
replayed "$trace.old"

# No more than it may have: the recording ends with a line in the log, the daemon goes on, and what is there is replayed.
rm -f "$GPUMUX_SOCKET" "$trace"
start_daemon --slice 50ms --idle 20ms --record "$trace" --record-size 16K
app five linked --bytes 96M --iterations 1000000 --seed 5
app six linked --bytes 96M --iterations 1000000 --seed 6
await_ready five
pid=$(pid_of five)
is_full() {
    for weight in 1 2 3 4 5 6 7 8 9; do # settings are entries as well
        "$ctl" set "$pid" weight=$weight > /dev/null || fail "set failed"
    done
    grep -q 'ends here: it is as large as --record-size allows (16 KiB)' "$dir/daemon.out"
}
within 60 is_full || fail "the recording does not end"
[ "$(stat -c %s "$trace")" -le 16384 ] || fail "the trace has $(stat -c %s "$trace") bytes"
[ "$(grep -c 'ends here' "$dir/daemon.out")" = 1 ] || fail "it says so more than once"
check_daemon
kill "$(pid_of five)" "$(pid_of six)"
await five
await six
replayed "$trace"
say "$(stat -c %s "$trace") bytes; $(grep -h decisions "$dir/replay.out")"
stop_daemon

# --- what is no place for a trace ---

# refuses TEXT FILE
refuses() {
    timeout 300 "$BUILD/daemon/gpumuxd" --socket "$dir/other.sock" --record "$2" > "$dir/said" 2>&1
    code=$?
    [ "$code" = 1 ] && [ "$(wc -l < "$dir/said")" = 1 ] && grep -qF -- "$1" "$dir/said" ||
        fail "--record $2: ended with $code: $(cat "$dir/said")"
    [ ! -e "$dir/other.sock" ] || fail "--record $2: a socket is left"
    say "$(cat "$dir/said")"
}
echo precious > "$dir/file"
refuses "is there and no trace of gpumuxd" "$dir/file"
[ "$(cat "$dir/file")" = precious ] || fail "a file that is no trace was changed"
mkfifo "$dir/fifo"
refuses "is there and not a regular file" "$dir/fifo"
refuses "is there and not a regular file" "$dir"
ln -s "$dir/file" "$dir/link"
refuses "is there and not a regular file" "$dir/link"
refuses "cannot be made: its folder: No such file or directory" "$dir/none/trace"
