#!/bin/sh
# The daemon's log goes where nothing more can be written: a pipe that nobody reads, a terminal that is stopped (Ctrl-S).
# Programs take turns as ever and mux-ctl is answered. When the log can be written again, it says how many lines are
# lost, and goes on. If it never can, the daemon still ends.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || skip "there is no python3"

# daemon_into COMMAND...: start the daemon, with all that it can say, by COMMAND, which says where its log goes.
daemon_into() {
    spawn daemon "$@" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --idle 50ms \
        --slice 50ms --log-level debug
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
}

# It says more than anybody holds for it: of each connection that ends one line of 90 bytes.
talk() {
    python3 -B - "$GPUMUX_SOCKET" << 'END'
import socket, sys
for i in range(12000):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(sys.argv[1])
    peer.close()
END
}

serves() {
    app one linked --bytes 96M --iterations 3 --until "$dir/enough" --seed 1
    app two proc --bytes 96M --iterations 3 --until "$dir/enough" --seed 2
    spawn talk talk
    await talk
    [ "$code" = 0 ] || fail "the daemon hangs: $line"
    await_switches "$(($(gpu switches) + 4))"
    expect_pass one two
    rm -f "$dir/enough"
    check_daemon
}

says_lost() {
    grep -q 'warning: [0-9]* lines of the log are lost: they could not be written' "$dir/said.log"
}

# The pipe is open for reading, as by a program that hangs.
mkfifo "$dir/pipe"
exec 9<> "$dir/pipe"
daemon_into sh -c 'exec 9>&- 2> "$0"; exec "$@"' "$dir/pipe"
serves
spawn reader cat "$dir/pipe"
ln "$dir/reader.out" "$dir/said.log"
within "$patience" says_lost || fail "it does not say how many lines are lost"
app three linked --bytes 24M --iterations 3
expect_pass three
is_said_of_three() {
    grep -q "pid $(pid_of three), uid" "$dir/said.log"
}
within "$patience" is_said_of_three || fail "the log does not go on"
stop_daemon
ends_well() {
    tail -n 1 "$dir/said.log" | grep -q ': stopped$'
}
within "$patience" ends_well || fail "the last line is not there: $(tail -n 1 "$dir/said.log")"
kill "$(pid_of reader)"
rm -f "$dir/said.log"

# A terminal: it is stopped before the daemon starts, and goes on when $dir/go is there.
cat > "$dir/terminal.py" << 'END'
import os, pty, signal, subprocess, sys, termios, time
folder = sys.argv[1]
master, slave = pty.openpty()
os.write(master, b"\x13")  # Ctrl-S
time.sleep(0.1)
child = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=slave, close_fds=True)
signal.signal(signal.SIGTERM, lambda *a: child.terminate())
os.close(slave)
os.set_blocking(master, False)
with open(folder + "/said.log", "wb") as log:
    is_stopped = True
    while child.poll() is None:
        if is_stopped and os.path.exists(folder + "/go"):
            os.write(master, b"\x11")  # Ctrl-Q
            is_stopped = False
        if not is_stopped:
            try:
                log.write(os.read(master, 65536))
                log.flush()
                continue
            except OSError:
                pass
        time.sleep(0.02)
sys.exit(child.returncode)
END
daemon_into python3 -B "$dir/terminal.py" "$dir"
serves
touch "$dir/go"
within "$patience" says_lost || fail "it does not say on the terminal how many lines are lost"
stop_daemon
rm -f "$dir/go"

# It ends, too, while nobody can read that.
daemon_into python3 -B "$dir/terminal.py" "$dir"
serves
stop_daemon
[ ! -s "$dir/said.log" ] || fail "the terminal was not stopped"
