#!/bin/sh
# mux-ctl metrics over a daemon of Python (fake_daemon.py): the text is that of Prometheus, by promtool where that is, and
# the same is served on a port and on a Unix socket, also while the daemon is down.
set -u
ctl=$BUILD/daemon/mux-ctl
command -v python3 > /dev/null || { echo "skipped: no python3" && exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-metrics.XXXXXX") || exit 2
export GPUMUX_SOCKET="$dir/socket" FAKE_NAME='my "own" \ app'
pids=
trap '[ -z "$pids" ] || kill $pids 2> /dev/null; wait; rm -rf "$dir"' EXIT

fail() {
    echo "mux_metrics: FAILED: $*"
    exit 1
}

# within COMMAND...: it succeeds within half a minute.
within() {
    for try in $(seq 300); do
        "$@" && return
        sleep 0.1
    done
    return 1
}

python3 "$SOURCE/tests/unit/fake_daemon.py" "$GPUMUX_SOCKET" "$("$ctl" version | sed 's/.*(protocol \([0-9]*\))/\1/')" 5 2 "$dir/said" &
pids=$! daemon=$!
answers() { [ -S "$GPUMUX_SOCKET" ] && "$ctl" ps -q > /dev/null 2>&1; }
within answers || fail "the made-up daemon does not start"

"$ctl" metrics > "$dir/metrics" || fail "metrics ended with $?"
cat > "$dir/check.py" << 'END'
"""Each metric has its help and type once, before its samples, which stand together; all lines are of the format."""
import re
import sys
seen, now = set(), None
label = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
for line in open(sys.argv[1], encoding="utf-8"):
    head = re.fullmatch(r"# HELP ([a-z_]+) [A-Z].*\.\n", line)
    if head:
        assert head[1] not in seen, line
        seen.add(head[1])
        now = head[1]
        continue
    kind = re.fullmatch(r"# TYPE ([a-z_]+) (gauge|counter|histogram)\n", line)
    if kind:
        histogram = kind[2] == "histogram"
        assert kind[1] == now and (kind[2] == "counter") == now.endswith("_total"), line
        continue
    sample = re.fullmatch(r"([a-z_]+)(?:\{%s(?:,%s)*\})? [-+.0-9e]+\n" % (label, label), line)
    assert sample and (re.sub("_(bucket|sum|count)$", "", sample[1]) if histogram else sample[1]) == now, line
assert len(seen) >= 20, seen
END
python3 "$dir/check.py" "$dir/metrics" || fail "the format: $(cat "$dir/metrics")"
if command -v promtool > /dev/null; then
    promtool check metrics < "$dir/metrics" > "$dir/promtool" 2>&1 && [ ! -s "$dir/promtool" ] || fail "promtool: $(cat "$dir/promtool")"
else
    echo "not checked by promtool: there is none"
fi
for line in 'gpumux_up 1' 'gpumux_build_info{version="0.1.0"} 1' 'gpumux_gpu_used_bytes{gpu="1",uuid="GPU-1"} 64424509440' \
    'gpumux_tier_limit_bytes{gpu="0",uuid="GPU-0",tier="pinned"} 68719476736' \
    'gpumux_app_resident_bytes{gpu="0",pid="1002",user="carol",command="train_2.py",container="",pod=""} 2147483648' \
    'gpumux_app_resident_bytes{gpu="0",pid="1000",user="alice",command="my \"own\" \\ app",container="",pod=""} 0'; do
    grep -qxF -- "$line" "$dir/metrics" || fail "no line $line: $(cat "$dir/metrics")"
done
grep '^gpumux_switch_seconds.*gpu="0"' "$dir/metrics" > "$dir/buckets"
sed 's/{gpu="0",uuid="GPU-0",\{0,1\}/{/' "$dir/buckets" | tr '\n' ' ' > "$dir/line"
[ "$(cat "$dir/line")" = 'gpumux_switch_seconds_bucket{le="0.001"} 1 gpumux_switch_seconds_bucket{le="0.064"} 1 gpumux_switch_seconds_bucket{le="+Inf"} 6 gpumux_switch_seconds_sum{} 7.5 gpumux_switch_seconds_count{} 6 ' ] ||
    fail "the times of switches: $(cat "$dir/line")"
grep -q '^gpumux_link_bytes_total{gpu="0",uuid="GPU-0",direction="in"} [0-9]*$' "$dir/metrics" || fail "no link: $(cat "$dir/metrics")"

# --- the dashboard has nothing that nobody exports ---
cat > "$dir/dashboard.py" << 'END'
"""Each metric, label and panel of the dashboard: the metric is exported, and has the labels that the dashboard asks for."""
import json
import re
import sys
labels = {}
for line in open(sys.argv[1], encoding="utf-8"):
    sample = re.match(r"([a-z_]+)(?:\{(.*)\})? ", line)
    if sample and line[0] != "#":
        labels.setdefault(sample[1], set()).update(re.findall(r'(?:^|,)([a-z]+)="', sample[2] or ""))
board = json.load(open(sys.argv[2], encoding="utf-8"))
places, ids = set(), set()
seen = set()
for panel in board["panels"]:
    at = panel["gridPos"]
    cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
    assert at["x"] + at["w"] <= 24 and not places & cells and panel["id"] not in ids, panel["title"]
    places |= cells
    ids.add(panel["id"])
    for target in panel["targets"]:
        found = re.findall(r"(gpumux_[a-z_]+)\{([^}]*)\}", target["expr"])
        assert found and len(found) == target["expr"].count("gpumux_"), target["expr"]
        shown = set(re.findall(r"\{\{([a-z]+)\}\}", target["legendFormat"])) - {"instance"}
        for name, selector in found:
            assert name in labels, f"{panel['title']}: nobody exports {name}"
            asked = set(re.findall(r"([a-z]+)=~", selector)) - {"instance"} | shown
            assert asked <= labels[name], f"{panel['title']}: {name} has no label {asked - labels[name]}"
            seen.add(name)
for variable in board["templating"]["list"]:
    if variable["type"] == "query":
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
        assert name in labels and (label == "instance" or label in labels[name]), variable
assert len(board["panels"]) > 10 and len(seen) > 15, seen
END
python3 "$dir/dashboard.py" "$dir/metrics" "$SOURCE/packaging/grafana.json" > "$dir/out" 2>&1 || fail "the dashboard: $(tail -n 1 "$dir/out")"

# --- served ---
if "$ctl" metrics --unix="$dir/none/x" 2>&1 | grep -q 'without libmicrohttpd'; then
    ! "$ctl" metrics --listen=1 2> /dev/null || fail "--listen ends with 0 where nothing is served"
    echo "the metrics are as they should be; this build does not serve them"
    exit 0
fi
"$ctl" metrics --unix="$dir/none/x" > "$dir/out" 2>&1
[ $? = 1 ] && grep -q "^mux-ctl: metrics: cannot listen at $dir/none/x: No such file" "$dir/out" || fail "no folder: $(cat "$dir/out")"
"$ctl" metrics --listen=99999 > "$dir/out" 2>&1
[ $? = 1 ] && grep -q 'is not a port from 1 to 65535' "$dir/out" || fail "a port that is none: $(cat "$dir/out")"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$ctl" metrics --listen="$port" & pids="$pids $!" by_port=$!
"$ctl" metrics --unix="$dir/http" & pids="$pids $!" by_path=$!
cat > "$dir/get.py" << 'END'
"""get.py PORT|PATH METHOD PATH [HOST]: prints status, type and body."""
import http.client
import socket
import sys
to = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]) if sys.argv[1].isdigit() else 0, timeout=20)
if not sys.argv[1].isdigit():
    to.sock = socket.socket(socket.AF_UNIX)
    to.sock.connect(sys.argv[1])
to.request(sys.argv[2], sys.argv[3], headers={"Host": sys.argv[4]} if sys.argv[4:] else {})
answer = to.getresponse()
print(answer.status, answer.getheader("Content-Type"))
sys.stdout.write(answer.read().decode())
END
get() { python3 "$dir/get.py" "$@" > "$dir/got" 2> "$dir/err"; }
for where in "$port" "$dir/http"; do
    within get "$where" GET /metrics || fail "$where: $(cat "$dir/err")"
    [ "$(head -n 1 "$dir/got")" = "200 text/plain; version=0.0.4; charset=utf-8" ] || fail "$where: $(cat "$dir/got")"
    sed 1d "$dir/got" > "$dir/body" && python3 "$dir/check.py" "$dir/body" || fail "$where: $(cat "$dir/got")"
    grep -qx 'gpumux_up 1' "$dir/body" || fail "$where: $(cat "$dir/body")"
    get "$where" GET / && grep -q '^404 ' "$dir/got" || fail "$where: /: $(cat "$dir/got")"
    get "$where" POST /metrics && grep -q '^405 ' "$dir/got" || fail "$where: POST: $(cat "$dir/got")"
done
# A name that a page in a browser could have made point here.
for host in evil.example "evil.example:$port" localhost "localhost:1$port" "localhost:$port.evil.example" "127.0.0.1.evil.example:$port" "[::1]:$port"; do
    get "$port" GET /metrics "$host" && grep -q '^403 ' "$dir/got" && ! grep -q gpumux_up "$dir/got" || fail "for $host: $(cat "$dir/got" "$dir/err")"
done
get "$port" GET /metrics "LocalHost:$port" && grep -q '^200 ' "$dir/got" || fail "for localhost: $(cat "$dir/got" "$dir/err")"
get "$dir/http" GET /metrics evil.example && grep -q '^200 ' "$dir/got" || fail "a Unix socket has no name: $(cat "$dir/got" "$dir/err")"
[ "$(stat -c %a "$dir/http")" = 660 ] || fail "the Unix socket is for $(stat -c %A "$dir/http")"
: > "$dir/file" && ln -s http "$dir/link"
for path in file link; do
    "$ctl" metrics --unix="$dir/$path" > "$dir/out" 2>&1
    [ $? = 1 ] && [ "$(cat "$dir/out")" = "mux-ctl: metrics: --unix: $dir/$path exists, and is no socket" ] || fail "$path: $(cat "$dir/out")"
done
[ -f "$dir/file" ] && [ -L "$dir/link" ] || fail "what is no socket is gone"
"$ctl" metrics --unix="$dir/http" > "$dir/out" 2>&1
[ $? = 1 ] && grep -q "cannot listen at $dir/http: Address already in use" "$dir/out" || fail "twice: $(cat "$dir/out")"
python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen(); time.sleep(60)' "$dir/packets" & pids="$pids $!" other=$!
within [ -S "$dir/packets" ] || fail "no socket of packets"
"$ctl" metrics --unix="$dir/packets" > "$dir/out" 2>&1
[ $? = 1 ] && [ -S "$dir/packets" ] || fail "another's socket: $(cat "$dir/out")"
kill "$other"

# Connections that trickle their requests do not keep others waiting, however many they are.
cat > "$dir/trickle.py" << 'END'
"""trickle.py PORT|PATH: 40 connections say a byte every fifth of a second, and are made anew when they are ended."""
import select
import socket
import sys
import time

def connect():
    to = socket.socket(socket.AF_INET if sys.argv[1].isdigit() else socket.AF_UNIX)
    to.connect(("127.0.0.1", int(sys.argv[1])) if sys.argv[1].isdigit() else sys.argv[1])
    to.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    return to

def trickle(to):
    """False: it was ended."""
    try:
        to.send(b"x", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        return not select.select([to], [], [], 0)[0]
    except OSError:
        return False

held = [connect() for n in range(40)]
print("all are there", flush=True)
while True:
    time.sleep(0.2)
    held = [to if trickle(to) else connect() for to in held]
END
# One try: on a busy machine sixteen may come between its connection and its request, and end it.
gets() {
    begun=$(date +%s%N)
    get "$1" GET /metrics && head -n 1 "$dir/got" | grep -q '^200 ' || return 1
    took=$((($(date +%s%N) - begun) / 1000000))
}
for where in "$port" "$dir/http"; do
    python3 "$dir/trickle.py" "$where" > "$dir/trickles" 2>&1 & pids="$pids $!" trickles=$!
    within grep -q 'all are there' "$dir/trickles" || fail "nothing trickles: $(cat "$dir/trickles")"
    for n in 1 2; do
        within gets "$where" || fail "$where: beside those that trickle: $(cat "$dir/err")"
        [ "$took" -lt 5000 ] || fail "$where: beside those that trickle it took $took ms"
        sleep 0.3
    done
    kill -0 "$trickles" || fail "what trickles ended: $(cat "$dir/trickles")"
    kill "$trickles"
done

# mux-ctl prefetch counts the room of those GPUs alone on which memory lacks, and what came is never less than nothing.
"$ctl" pause 1004 > /dev/null && "$ctl" prefetch 1004 > "$dir/said" 2>&1 || fail "prefetch: $(cat "$dir/said")"
grep -q '^0 came to the GPU; 5 GiB have no room there that nobody needs (20 GiB are free)' "$dir/said" || fail "prefetch: $(cat "$dir/said")"

# A daemon that hangs: who waits gets what the first one gets.
sleep 1.1
kill -STOP "$daemon"
begun=$(date +%s)
for n in 1 2 3; do python3 "$dir/get.py" "$port" GET /metrics > "$dir/got.$n" 2>&1 & pids="$pids $!" gets="${gets:-} $!"; done
wait $gets || fail "a get failed: $(cat "$dir"/got.*)"
[ $(($(date +%s) - begun)) -lt 12 ] || fail "three took $(($(date +%s) - begun)) s"
for n in 1 2 3; do grep -qx 'gpumux_up 0' "$dir/got.$n" || fail "a daemon that hangs: $(cat "$dir/got.$n")"; done
kill -CONT "$daemon"
kill "$daemon" && wait "$daemon" 2> /dev/null
sleep 1.1
get "$port" GET /metrics && grep -qx 'gpumux_up 0' "$dir/got" || fail "without a daemon: $(cat "$dir/got")"
"$ctl" metrics > "$dir/out" 2> "$dir/err"
[ $? = 3 ] && grep -qx 'gpumux_up 0' "$dir/out" || fail "metrics without a daemon: $(cat "$dir/out" "$dir/err")"
kill "$by_path" "$by_port"
wait "$by_path" || fail "the one on the Unix socket ended with $?"
wait "$by_port" || fail "the one on the port ended with $?"
[ ! -e "$dir/http" ] || fail "the Unix socket is left"
pids=
echo "the metrics are as they should be, and are served"
