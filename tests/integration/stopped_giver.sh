#!/bin/sh
# Programs in turn, of which one is stopped as soon as it has drained: it is told to unmap memory, and does not. It keeps
# that memory, and nobody waits for it: all others go on having turns.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
# All that is swapped out, and 64 MiB: what an eviction of the stopped one has set aside there is what the others need.
start_daemon --slice 100ms --log-level debug --pinned 160M
for i in 1 2 3 4; do
    app "app$i" linked --bytes 64M --allocs "$((32 / shrink))" --iterations 1 --seed "$i" --until "$dir/enough"
done
for i in 1 2 3 4; do await_ready "app$i"; done

# Stop the next one that drains, within a millisecond; its pid.
stop_who_drains() {
    python3 -B -c '
import os, re, signal, sys, time
log = open(sys.argv[1])
log.seek(0, os.SEEK_END)
until, line = time.monotonic() + float(sys.argv[2]), ""
while time.monotonic() < until:
    line += log.readline()
    if not line.endswith("\n"):
        time.sleep(0.0001)
        continue
    drained = re.search(r"\(pid (\d+)\): draining -> paused", line)
    if drained:
        os.kill(int(drained.group(1)), signal.SIGSTOP)
        print(drained.group(1))
        sys.exit(0)
    line = ""
sys.exit(1)' "$dir/daemon.out" "$patience"
}
ms_of() {
    app_number "$(pid_of "$1")" run_s | awk '{ printf "%d", $1 * 1000 }'
}
# Each of the others ran for three turns more than when it was stopped: so it had another than the one that it had then.
have_turns() {
    is_up || return 1
    for i in 1 2 3 4; do
        [ "$(pid_of "app$i")" = "$stopped" ] || [ "$(ms_of "app$i")" -ge "$(($(cat "$dir/app$i.ms") + 300))" ] || return 1
    done
}

for round in 1 2 3 4 5; do
    stopped=$(stop_who_drains) || fail "nobody drains any more"
    take_status
    for i in 1 2 3 4; do ms_of "app$i" > "$dir/app$i.ms"; done
    within "$patience" have_turns || fail "not everybody has turns while process $stopped is stopped"
    kill -CONT "$stopped"
done
touch "$dir/enough"
expect_pass app1 app2 app3 app4
expect_empty
stop_daemon
