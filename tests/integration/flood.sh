#!/bin/sh
# Another user asks for more than anybody needs (tests/programs/flood.c): status and log from many connections, answers
# that nobody reads, allocations that wait by the thousands, settings. Programs of root go on and lose no byte, mux-ctl of
# root is answered, no program hears nothing of the daemon for long, what the daemon holds for that user is bounded, and
# the log names the user, but not for each time.
. "$(dirname "$0")/lib.sh"
need_stranger
flood=$BUILD/tests/programs/gm_flood
command -v python3 > /dev/null || skip "there is no python3"

# How long mux-ctl status of root takes at most, in ms, tried until NAME has ended.
slowest_status() {
    python3 -B - "$ctl" "$dir/$1.code" << 'END'
import os, subprocess, sys, time
slowest = 0
while not os.path.exists(sys.argv[2]):
    began = time.monotonic()
    if subprocess.run([sys.argv[1], "status", "--json"], stdout=subprocess.DEVNULL).returncode:
        sys.exit("no answer")
    slowest = max(slowest, time.monotonic() - began)
    time.sleep(0.1)
print(int(slowest * 1000))
END
}

daemon_files() {
    ls "/proc/$(pid_of daemon)/fd" | wc -l
}

daemon_kib() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$(pid_of daemon)/status"
}

# flooded WAY: for some seconds, beside two programs of root that take turns.
flooded() {
    app one linked --bytes 96M --iterations 3 --pause 30 --until "$dir/enough" --seed 1
    app two proc --bytes 96M --iterations 3 --pause 30 --until "$dir/enough" --seed 2
    await_ready one
    await_ready two
    spawn flood $stranger "$flood" "$1" --seconds 2 --ready "$dir/flood.ready"
    within "$patience" is_ready flood || fail "$1 does not begin: $(tail -n 1 "$dir/flood.out")"
    slowest=$(slowest_status flood) || fail "$1: root's mux-ctl status is not answered"
    kib=$(daemon_kib)
    await flood
    touch "$dir/enough"
    [ "$code" = 0 ] || fail "$1 ended with $code: $line"
    say "$1: $line; slowest status of root: $slowest ms; $(daemon_files) files, $kib KiB"
    [ "$slowest" -lt 2000 ] || fail "$1: root's mux-ctl status took $slowest ms"
    silence=$(echo "$line" | grep -o 'silence=[0-9]*' | cut -d= -f2)
    [ "$silence" -lt 5000 ] || fail "$1: programs heard nothing for $silence ms"
    expect_pass one two
    check_daemon
    expect_empty
    rm -f "$dir/enough"
}

# named TEXT: the log says it of that user, once or twice.
named() {
    named_lines=$(grep -c "user .*(uid 65534, pid [0-9]*): .*$1" "$dir/daemon.out")
    [ "$named_lines" -ge 1 ] || fail "the log does not say \"$1\""
    [ "$named_lines" -le 2 ] || fail "the log says \"$1\" $named_lines times"
}

start_daemon
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
before=$(daemon_kib)
flooded ask
named 'connections of its user are open'
flooded deaf
[ "$((kib - before))" -lt 262144 ] || fail "the daemon holds $((kib - before)) KiB for who reads nothing"
named 'does not read its messages'

# One user's settings are no other's.
spawn flood $stranger "$flood" set --seconds 2 --ready "$dir/flood.ready"
within "$patience" is_ready flood || fail "set does not begin"
spawn other setpriv --reuid=65533 --regid=65533 --clear-groups "$flood" set --count 40
await other
case $line in
"PASS "*" refused=0") say "another user beside it: $line" ;;
*) fail "another user's settings: $line" ;;
esac
await flood
case $code,$line in
*" refused=0") fail "so many settings are not refused: $line" ;;
0,"PASS "*) say "set: $line" ;;
*) fail "set: $line" ;;
esac
stop_daemon
lines=$(grep -c 'uid 65534' "$dir/daemon.out")
say "$lines lines of the log speak of that user"
[ "$lines" -le 300 ] || fail "the log has $lines lines about that user"

start_daemon --when-full wait --pinned 256M
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
flooded wait
stop_daemon
