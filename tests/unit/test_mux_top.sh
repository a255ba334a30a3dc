#!/bin/sh
# mux-ctl top on terminals of tmux, over a daemon of Python with a hundred programs (fake_daemon.py): what is on the
# screen, at 80x24 and 200x50, with one GPU and eight; keys, and what the daemon is told by them; a daemon that ends.
set -u
ctl=$BUILD/daemon/mux-ctl
"$ctl" help top > /dev/null || exit 1
command -v tmux > /dev/null && command -v python3 > /dev/null || { echo "skipped: no tmux, or no python3" && exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-top.XXXXXX") || exit 2
export TMUX_TMPDIR="$dir" GPUMUX_SOCKET="$dir/socket"
unset TMUX NO_COLOR
trap 'end_all; rm -rf "$dir"' EXIT
daemon=
protocol=$("$ctl" version | sed 's/.*(protocol \([0-9]*\))/\1/')

n=0 # of the terminal: one that ends does not meet the next one
terminal() {
    tmux -L "top$n" "$@"
}

close_terminal() {
    terminal kill-server 2> /dev/null
    n=$((n + 1))
}

end_all() {
    close_terminal
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    wait
    daemon=
}

fail() {
    echo "mux_top: FAILED: $*"
    echo "--- screen"
    screen
    exit 1
}

screen() {
    terminal capture-pane -p 2> /dev/null
}

# serve PROGRAMS GPUS
serve() {
    rm -f "$GPUMUX_SOCKET"
    python3 "$SOURCE/tests/unit/fake_daemon.py" "$GPUMUX_SOCKET" "$protocol" "$1" "$2" "$dir/said" 2> "$dir/daemon.err" &
    daemon=$!
    for try in $(seq 300); do
        [ -S "$GPUMUX_SOCKET" ] && "$ctl" ps -q > /dev/null 2>&1 && return
        sleep 0.1
    done
    fail "the made-up daemon does not start: $(cat "$dir/daemon.err")"
}

# begin COLUMNS LINES [VARIABLE=VALUE...]
begin() {
    columns=$1 lines=$2
    shift 2
    terminal -f /dev/null new-session -d -x "$columns" -y "$lines" \
        "env LC_ALL=C.UTF-8 $* '$ctl' top --delay=200ms; echo ended with \$?; sleep 1000" || exit 2
    shows '^gpumux 0.1.0 up '
}

# shows TEXT: that comes onto the screen (a basic regular expression).
shows() {
    for try in $(seq 300); do
        screen > "$dir/screen"
        grep -q -- "$1" "$dir/screen" && return
        sleep 0.1
    done
    fail "\"$1\" does not come"
}

keys() {
    terminal send-keys "$@"
}

# told TEXT: the daemon was asked that.
told() {
    for try in $(seq 100); do
        grep -q -- "$1" "$dir/said" 2> /dev/null && return
        sleep 0.1
    done
    fail "the daemon was not told \"$1\": $(cat "$dir/said")"
}

if "$ctl" top < /dev/null 2>&1 | grep -q 'built without ncurses'; then
    "$ctl" top > /dev/null 2>&1 && fail "top ends with 0 where it is left out"
    echo "skipped: this build has no ncurses"
    exit 77
fi

# --- without a terminal, without a daemon ---
"$ctl" top > "$dir/out" 2> "$dir/err" < /dev/null
[ $? = 1 ] && grep -q '^mux-ctl: top: there is no terminal: say --once' "$dir/err" && [ "$(cat "$dir/out" "$dir/err" | wc -l)" = 1 ] ||
    fail "without a terminal: $(cat "$dir/out" "$dir/err")"
"$ctl" top --json > "$dir/out" 2> "$dir/err"
[ $? = 1 ] && grep -q 'top: --json needs --once' "$dir/err" || fail "--json: $(cat "$dir/err")"
"$ctl" top --once > "$dir/out" 2> "$dir/err"
[ $? = 3 ] && grep -q 'gpumuxd is not running' "$dir/err" || fail "without a daemon: $(cat "$dir/err")"

# --- a hundred programs on 80x24 ---
serve 100 1
begin 80 24
shows '^GPU 0  made-up GPU 0  *works: train_'
shows '^  gpu        60 GiB of 80 GiB  .*in    12.5 GB/s .*█'
shows '^  pinned     16 GiB of 64 GiB  *▂.*out    3.0 GB/s '
shows '^  below       2 GiB of 32 GiB .*busy  *[0-9]* % '
shows '100 programs, 1 running, 99 waiting; by state'
shows '^ *PID USER     NAME            STATE     %GPU  RESIDENT CLASS WHY$'
[ "$(grep -c ' train_[0-9]*\.py  ' "$dir/screen")" = 16 ] || fail "not 16 programs on 24 lines"
[ "$(LC_ALL=C.UTF-8 wc -L < "$dir/screen")" -le 80 ] || fail "a line is too wide"
sed -n 7p "$dir/screen" | grep -q ' running ' || fail "who runs is not first"
sed -n 8p "$dir/screen" | grep -q ' train_99.py .* waiting .* another program' || fail "who waits longest is not next"
shows '^h help .* q quit$'
keys End
shows '^100[01] train_[01].py: another program.s slice is not over: app [12] has the GPU'
keys s # by memory
shows 'by memory'
keys Home
shows '^1[0-9]* train_[0-9]*.py: '
keys s s s s s # run, wait, user, name, pid
shows 'by pid'
keys Home
shows '^1000 train_0.py: '
keys Down Down
shows '^1002 train_2.py: '
keys p
shows '^pid 1002 (train_2.py): paused=yes'
shows '^ *1002 carol .* paused .* paused as yes'
told '^selects=1 pid=1002 settings=8 class=0 paused=1 '
keys p
shows '^pid 1002 (train_2.py): paused=no'
keys e
shows '^ *1002 carol .* paused as evict'
told 'pid=1002 settings=8 class=0 paused=2 '
keys i
told 'pid=1002 settings=8 class=0 paused=3 '
keys p
shows '^pid 1002 (train_2.py): paused=no'
keys c
shows '^class (auto, latency, interactive or batch): _'
keys b a t c g BSpace h Enter
shows '^ *1002 carol .* batch '
told 'pid=1002 settings=1 class=3 '
keys c f a s t Enter
shows 'class: "fast" is not auto, latency, interactive or batch'
keys m
shows '^cap '
keys 6 G Enter
told 'pid=1002 settings=32 class=0 paused=0 cap=6442450944'
keys m Escape # nothing is set
shows '^h help'
[ "$(wc -l < "$dir/said")" = 7 ] || fail "the daemon was told more: $(cat "$dir/said")"
keys /
shows '^show only: _'
keys t r a i n _ 1 3 Enter
shows '1 match "train_13"'
[ "$(grep -c ' train_[0-9]*\.py  ' "$dir/screen")" = 1 ] || fail "the filter shows others"
keys p # another user's
shows 'another user.s program: only root may set it'
keys / x y z z y Enter
shows 'no program matches the filter'
keys p
shows 'no program is marked'
keys Escape
shows ' waiting; by pid'
shows '^ *1000 alice '
[ "$(grep -c ' train_[0-9]*\.py  ' "$dir/screen")" = 16 ] || fail "the filter stays"
keys h
shows '^  e   evict it: its memory leaves the GPU'
keys x
shows '^GPU 0  made-up'
# larger and smaller: all of it is used, and nothing breaks
terminal resize-window -x 200 -y 50
shows ' another program.s slice is not over: app [0-9]* has the GPU$'
[ "$(grep -c ' train_[0-9]*\.py  ' "$dir/screen")" = 42 ] || fail "not 42 programs on 50 lines"
# on 60 columns nothing is cut: what has no room is left out, and the whole reason stands below
terminal resize-window -x 60 -y 24
shows '^ *PID USER     NAME            STATE     %GPU  RESIDENT$'
shows '^100 programs, 1 running, 99 waiting; by pid$'
shows '^  gpu      60 GiB of 80 GiB *in    12.5 GB/s '
shows '^ *1001 bob      train_1.py .* 1 GiB$'
shows '^1000 train_0.py: another program.s slice is not over: app'
shows 'h help .* q quit$'
[ "$(tail -n 4 "$dir/screen" | head -n 3 | tr '\n' ' ' | tr -s ' ' | grep -c 'has the GPU')" = 1 ] || fail "the reason is cut"
[ "$(LC_ALL=C.UTF-8 wc -L < "$dir/screen")" -le 60 ] || fail "a line is too wide"
keys h
shows '^  s   sort by the next of state, memory, run, wait, user,$'
shows '^  name or pid$'
keys x
shows '^ *PID USER '
terminal resize-window -x 30 -y 5
shows '^too small a terminal'
terminal resize-window -x 80 -y 24
shows '^GPU 0  made-up'
# the daemon ends, and another one comes
kill "$daemon" && wait "$daemon" 2> /dev/null
shows '^gpumuxd is not running'
serve 3 1
shows ': 3 programs, 1 running, 2 waiting'
shows '^h help'
keys q
shows '^ended with 0$'
end_all

# --- a program on two GPUs has a line for each ---
export FAKE_BOTH=1
serve 2 2
unset FAKE_BOTH
begin 80 24 TERM=screen-256color
keys s s s s s s
shows 'by pid'
keys Home
shows '^1000 train_0.py: '
keys Down Down
shows '^1001 train_1.py: '
close_terminal
end_all

# --- eight GPUs: a line each; colours; a terminal of which nothing is known ---
serve 40 8
begin 80 24 TERM=screen-256color
for gpu in 0 3 7; do shows "^GPU $gpu     60 GiB  75%  in 12.5 GB/s  out 3.0 GB/s   busy "; done
[ "$(grep -c ' train_[0-9]*\.py  ' "$dir/screen")" = 12 ] || fail "not 12 programs below eight GPUs"
terminal capture-pane -p -e | grep -q "$(printf '\033\\[3[1-7]m')" || fail "no colours"
close_terminal
begin 80 24 TERM=screen-256color NO_COLOR=1
! terminal capture-pane -p -e | grep -q "$(printf '\033\\[3[1-7]m')" || fail "colours with NO_COLOR"
close_terminal
terminal -f /dev/null new-session -d -x 80 -y 24 "TERM=frobnicate '$ctl' top 2>&1; echo ended with \$?; sleep 1000"
shows '^mux-ctl: top: nothing is known of the terminal "frobnicate"'
shows '^ended with 1$'

# --- once ---
"$ctl" top --once > "$dir/out" && [ "$(grep -c ' train_[0-9]*\.py  ' "$dir/out")" = 40 ] || fail "--once: $(cat "$dir/out")"
"$ctl" top --once --json --user=bob --sort=pid > "$dir/json" || fail "--once --json ended with $?"
python3 - "$dir/json" << 'END' || fail "JSON: $(cat "$dir/json")"
import json, sys
view = json.load(open(sys.argv[1]))
assert view["schema"] == 1 and 0.3 < view["seconds"] < 30, view["seconds"]
assert len(view["gpus"]) == 8 and all(11e9 < gpu["in_bytes_per_s"] < 14e9 and 2e9 < gpu["out_bytes_per_s"] < 4e9 for gpu in view["gpus"])
assert [app["pid"] for app in view["apps"]] == list(range(1001, 1040, 3))
assert all(app["user"] == "bob" and 0 <= app["gpu_percent"] <= 100 and app["why"] for app in view["apps"])
END
echo "the screen, the keys and the view as JSON are as they should be"
