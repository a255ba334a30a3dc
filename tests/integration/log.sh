#!/bin/sh
# mux-ctl log: who got the GPU, why, in whose place; changes of levels and settings. --follow goes on, says what it
# missed, and goes on with the next daemon.
. "$(dirname "$0")/lib.sh"

# seqs FILE: the numbers of the entries in it.
seqs() {
    grep -o '"seq":[0-9]*' "$1" | cut -d: -f2
}

holds() {
    grep -q -- "$2" "$1"
}

start_daemon --slice 50ms --log-level debug
"$ctl" log > "$dir/log.out" 2>&1 || fail "the log of a new daemon: $(cat "$dir/log.out")"
[ ! -s "$dir/log.out" ] || fail "a new daemon has a log: $(cat "$dir/log.out")"
spawn follow "$ctl" log -f --json
spawn follow_text "$ctl" log --follow
app one linked --bytes 96M --allocs 3 --seconds 3 --iterations 3 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 3 --seconds 3 --iterations 3 --seed 2 --until "$dir/enough"
await_ready one
await_ready two
"$ctl" set "$(pid_of one)" weight=2 > /dev/null || fail "set failed"
"$ctl" pause "$(pid_of one)" > /dev/null || fail "pause failed"
"$ctl" resume "$(pid_of one)" > /dev/null || fail "resume failed"
# Seen now: on a slow machine more switches than the daemon keeps may follow.
has_set() {
    "$ctl" log > "$dir/set.out" && holds "$dir/set.out" "  set     app . (pid $(pid_of one), .*: weight=2, by $by\$" &&
        holds "$dir/set.out" "  paused  app . (pid $(pid_of one), .*: paused, by $by\$" &&
        holds "$dir/set.out" "  resumed app . (pid $(pid_of one), "
}
by=$(id -un 2> /dev/null) || by=$(id -u)
within "$patience" has_set || fail "no entry of mux-ctl set, pause or resume"
await_switches 20
expect_pass one two
expect_switches 5
expect_empty
one=$(cat "$dir/one.pid") two=$(cat "$dir/two.pid")

# --- what was kept ---

"$ctl" log > "$dir/log.out" || fail "log failed"
me="app [01] (pid \($one\|$two\), gm_worker[a-z_]*) L[123]"
turns="^$(date +%Y)-[0-9]*-[0-9]* [0-9:.]*  switch  $me: its turn, after [0-9.]* s; for $me: its turn was over; [0-9.]* ms (.*),"
holds "$dir/log.out" "$turns .* out, .* in, at [0-9.]* GB/s\$" || fail "no switch says whom it took turns with: $(head -n 5 "$dir/log.out")"
# The parts of a switch, as they are shown, are its whole time.
awk 'match($0, /; [0-9.]+ ms \([^)]*\)/) {
    n = split(substr($0, RSTART + 2, RLENGTH - 3), number, /[^0-9.]+/)
    sum = 0
    for (i = 2; i <= n; i++) sum += number[i]
    if (sum - number[1] > .05 * 10 || number[1] - sum > .05 * 10) { print; exit 1 }
    seen++
} END { exit seen == 0 }' "$dir/log.out" > "$dir/odd.out" || fail "the parts are not the whole: $(cat "$dir/odd.out")"
has_level() {
    cat "$dir/log.out" "$dir/set.out" "$dir/follow_text.out" > "$dir/all.out"
    holds "$dir/all.out" "^[0-9-]* [0-9:.]*  level   $me: from level 1, used up\$"
}
within "$patience" has_level || fail "no level was left"
[ "$("$ctl" log -n 3 | wc -l)" = 3 ] || fail "-n 3 prints another number of lines"
[ "$("$ctl" log -n 3)" = "$(tail -n 3 "$dir/log.out")" ] || fail "-n 3 prints others than the last"
[ -z "$("$ctl" log -n 0)" ] || fail "-n 0 prints something"
grep -q "switch [0-9]* to app . (pid $two, .*, level .): slice, in the place of app . (pid $one, .*: turn: " "$dir/daemon.out" ||
    fail "the daemon's own log tells no reasons"

# --- followed ---

has_all() {
    [ "$(seqs "$dir/follow.out" | tail -n 1)" = "$("$ctl" log -n 1 --json | seqs /dev/stdin)" ]
}
within "$patience" has_all || fail "what is followed ends with $(seqs "$dir/follow.out" | tail -n 1)"
seqs "$dir/follow.out" | awk 'NR > 1 && $1 <= last { exit 1 } { last = $1 }' || fail "entries out of order, or twice"
if ! grep -q '"kind":"gap"' "$dir/follow.out"; then
    seqs "$dir/follow.out" | awk '$1 != NR { exit 1 }' || fail "an entry is missing, and it is not said"
    listed=$(grep -o '"kind":"switch"' "$dir/follow.out" | wc -l)
    [ "$listed" = "$(gpu switches)" ] || fail "$listed switches in the log, $(gpu switches) in the status"
fi
within "$patience" holds "$dir/follow_text.out" "  resumed app . (pid $one, " || fail "no text was followed"
kill -INT "$(pid_of follow_text)"
await follow_text
[ "$code" = 0 ] || fail "a follower that was interrupted ended with $code"
! holds "$dir/follow_text.out" mux-ctl || fail "it is not quiet: $line"

# The status counts what is listed: an end of a turn that nobody takes over is no switch.
app quiet linked --bytes 20M --iterations 2 --seed 3 --go "$dir/go"
await_ready quiet
"$ctl" pause "$(pid_of quiet)" > /dev/null || fail "pause failed"
within "$patience" has_state quiet paused || fail "quiet is not paused"
"$ctl" resume "$(pid_of quiet)" > /dev/null || fail "resume failed"
"$ctl" log > "$dir/log.out" || fail "log failed"
listed=$(grep -c '  switch  ' "$dir/log.out")
[ "$(wc -l < "$dir/log.out")" = 256 ] || [ "$listed" = "$(gpu switches)" ] ||
    fail "$listed switches are listed, the status says $(gpu switches)"

# More than the daemon keeps, while the follower looks away.
spawn away "$ctl" log -f -n 1
within "$patience" test -s "$dir/away.out" || fail "-f -n 1 begins with nothing"
[ "$(wc -l < "$dir/away.out")" = 1 ] || fail "-f -n 1 begins with more than one entry"
stop away
i=0
while [ $i -lt 300 ]; do
    "$ctl" set "$(pid_of quiet)" weight=$((2 + i % 2)) > /dev/null || fail "set failed"
    i=$((i + 1))
done
kill -CONT "$(pid_of away)"
within "$patience" holds "$dir/away.out" '^\.\.\. [0-9]* entries were lost: the daemon keeps the last 256$' || fail "a gap is not said: $(head -n 3 "$dir/away.out")"
within "$patience" holds "$dir/follow.out" '"set":"weight=2"' || fail "the other follower stopped"
[ "$("$ctl" log | wc -l)" = 256 ] || fail "the daemon keeps $("$ctl" log | wc -l) entries"
touch "$dir/go"
expect_pass quiet

# --- the daemon goes ---

spawn watch "$ctl" status --watch=50ms
within "$patience" test -s "$dir/watch.out" || fail "--watch shows nothing"
stop_daemon
for i in follow away watch; do
    within "$patience" holds "$dir/$i.out" '^mux-ctl: gpumuxd has ended: waiting for the next one$' ||
        fail "$i does not say that the daemon ended: $(tail -n 3 "$dir/$i.out")"
done
"$ctl" log > "$dir/said" 2>&1
code=$?
[ "$code" = 3 ] && grep -q '^mux-ctl: gpumuxd is not running' "$dir/said" || fail "log without a daemon: $code $(cat "$dir/said")"

# --- and comes back ---

start_daemon
rm -f "$dir/go"
app next linked --bytes 20M --iterations 2 --seed 4 --go "$dir/go"
await_ready next
"$ctl" set "$(pid_of next)" weight=2 > /dev/null || fail "set failed"
pid=$(pid_of daemon)
for i in follow away watch; do
    within "$patience" holds "$dir/$i.out" '^mux-ctl: gpumuxd is back$' || fail "$i does not go on"
    [ "$(grep -c '^mux-ctl: ' "$dir/$i.out")" = 2 ] || fail "$i says more than two things: $(grep '^mux-ctl: ' "$dir/$i.out")"
done
within "$patience" holds "$dir/follow.out" "^{\"kind\":\"restart\",\"pid\":$pid}$" || fail "the restart is not told"
within "$patience" holds "$dir/away.out" "^\.\.\. gpumuxd was restarted (pid $pid)$" || fail "the restart is not told"
# what the new one decides follows it, from its first entry on
follows() {
    sed -n '/restarted/,$p' "$dir/away.out" | grep -q "  set     app . (pid $(pid_of next), "
}
within "$patience" follows || fail "nothing follows the restart: $(tail -n 3 "$dir/away.out")"
for i in follow away watch; do
    kill -TERM "$(pid_of $i)"
    await $i
done
touch "$dir/go"
expect_pass next
stop_daemon
