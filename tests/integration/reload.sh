#!/bin/sh
# The configuration is read again on SIGHUP: what can change changes, for running programs too; what cannot is named; a mistake
# changes nothing. And `gpumuxd --check`, without a GPU and beside the daemon.
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$dir"
conf=$dir/gpumux/gpumux.conf # the daemon finds it: nobody says that it must be there
mkdir "$dir/gpumux"
unset GPUMUX_CLASS

# reload TEXT: SIGHUP, and a line of the log with TEXT. Each such line comes once in this test.
has_lines() {
    is_up && [ "$(grep -cF -- "$2" "$dir/daemon.out")" -ge "$1" ]
}
reload() {
    kill -HUP "$(pid_of daemon)"
    within 20 has_lines 1 "$1" || fail "the log lacks \"$1\""
    say "$1"
}

check() {
    check_code=$1
    check_text=$2
    shift 2
    env LD_LIBRARY_PATH=/nonexistent "$BUILD/daemon/gpumuxd" --check --config "$conf" "$@" > "$dir/said" 2>&1
    code=$?
    [ "$code" = "$check_code" ] || fail "--check ended with $code: $(cat "$dir/said")"
    grep -qF -- "$check_text" "$dir/said" || [ -z "$check_text" ] || fail "--check: $(cat "$dir/said")"
    [ -n "$check_text" ] || [ ! -s "$dir/said" ] || fail "--check says $(cat "$dir/said")"
}

printf '%s\n' 'slice = 100ms' 'idle = 30ms' "rule = command=gm_worker_proc* class=batch weight=0.5" > "$conf"
check 0 ''
spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --user --log-level info
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
! has_ended daemon || fail "the daemon did not start"
app one proc --bytes 40M --iterations 2 --seed 1 --go "$dir/go"
app two linked --bytes 40M --iterations 2 --seed 2 --go "$dir/go"
await_ready one
await_ready two
$ctl set "$(pid_of two)" weight=2 > /dev/null || fail "set"

# has APP TEXT
has() {
    take_status
    app_has "$(pid_of "$1")" "$2" || fail "$1: $(app_of "$(pid_of "$1")")"
}
has one '"class":"batch","weight":0.5'
has two '"class":"auto","weight":2'

# mux-ctl says what holds, what a reload would change, and has it changed.
"$ctl" config show > "$dir/said" || fail "config show"
for line in "idle = 30ms *# $conf:2" "slice = 100ms *# $conf:1" 'pinned = 512 MiB *# command line' 'patience = 60s *# default' \
    "rule = command=gm_worker_proc\* class=batch weight=0.5 # $conf:3" 'max-apps = 256 *# default'; do
    grep -qx -- "$line" "$dir/said" || fail "config show lacks \"$line\": $(cat "$dir/said")"
done
printf '%s\n' 'slice = 300ms' 'idle = 60ms' "rule = command=gm_worker_proc* class=batch weight=0.5" > "$conf"
"$ctl" config check > "$dir/said" || fail "config check"
[ "$(cat "$dir/said")" = "would change: idle; need a restart: slice" ] || fail "config check says $(cat "$dir/said")"
"$ctl" config show | grep -q '^idle = 30ms ' || fail "a check has changed something"
"$ctl" config reload > "$dir/said" || fail "config reload"
[ "$(cat "$dir/said")" = "changed: idle; need a restart: slice" ] || fail "config reload says $(cat "$dir/said")"
"$ctl" config show | grep -q '^idle = 60ms ' || fail "config reload changed nothing"
# Nobody is an administrator from within a container.
[ "$(id -u)" = 0 ] && contain="unshare --pid --fork" || contain="unshare --map-root-user --pid --fork"
if $contain true 2> /dev/null; then
    ! $contain "$ctl" config reload > "$dir/said" 2>&1 || fail "root of a container may have the daemon reload"
    grep -q "only root and the daemon's own user" "$dir/said" || fail "config reload in a container says $(cat "$dir/said")"
    ! $contain "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --drain > "$dir/said" 2>&1 || fail "root of a container may drain"
    is_up || fail "root of a container has ended the daemon"
fi
# Who asks for a check is told of that one, also if a SIGHUP has the file read again before the answer.
for n in 1 2 3 4; do
    sed -i "s/^idle = .*/idle = 6${n}ms/" "$conf"
    "$ctl" config check > "$dir/said" 2>&1 &
    checker=$!
    sleep 0.006
    kill -HUP "$(pid_of daemon)"
    wait "$checker"
    grep -qE '^would change: idle|^need a restart: slice$|at this moment' "$dir/said" ||
        fail "config check beside a SIGHUP says $(cat "$dir/said")"
done
printf '%s\n' 'slice = 300ms' 'idle = 60ms' "rule = command=gm_worker_proc* class=batch weight=0.5" > "$conf"
"$ctl" config reload > "$dir/said" || fail "config reload"
echo 'idel = 3s' > "$conf"
for word in check reload; do
    ! "$ctl" config "$word" > "$dir/said" 2>&1 || fail "config $word takes a mistake"
    grep -qF "config: $conf:1: no option has the name" "$dir/said" || fail "config $word says $(cat "$dir/said")"
done
"$ctl" config show | grep -q '^idle = 60ms ' || fail "a mistake has changed something"
! "$ctl" config sing > "$dir/said" 2>&1 && grep -q "say show, explain, check or reload" "$dir/said" || fail "$(cat "$dir/said")"

# New values hold; a setting of mux-ctl is stronger; what cannot change is named, with its place.
printf '%s\n' '# mine' 'slice = 200ms' 'idle = 40ms' 'best-class = auto' "rule = command=* class=interactive weight=0.25" > "$conf"
check 0 ''
reload "reload: read $conf again: changed: best-class, rule, idle"
has_lines 1 "$conf:2: slice has changed, which needs a restart" || fail "slice is not named"
has one '"class":"interactive","weight":0.25'
has two '"class":"interactive","weight":2'
grep -q '"idle_s":0.04,' "$dir/status.json" || fail "idle is what it was"
grep -q '"slice_s":0.1,' "$dir/status.json" || fail "slice has changed"
grep -q '"rules":\["command=\* class=interactive weight=0.25"\]' "$dir/status.json" || fail "the status tells no new rules"

# A mistake changes nothing, and its place is said. The daemon reads on.
mistake() {
    check 1 "$1"
    reload "reload: nothing was changed: $1"
    has one '"class":"interactive","weight":0.25'
}
printf '%s\n' 'idle = 50ms' 'rule = command=* paused' 'idel = 3s' > "$conf"
mistake "$conf:3: no option has the name \"idel\""
printf '%s\n' 'idle = 50ms' 'rule = command=gm_worker' > "$conf"
mistake "$conf:2: rule: sets nothing"
printf 'idle = 50ms\nrule = user=ro' > "$conf" # half a file
mistake "$conf:2: rule: "
printf 'idle = 50ms\n%0100000d\n' 0 > "$conf"
mistake "$conf:2: the line is too long, or not text"
yes '# nothing' | head -c 2M > "$conf"
mistake "$conf: is larger than 1024 KiB"
rm "$conf"
mistake "$conf: cannot be read: No such file"
mkdir "$conf"
mistake "$conf: cannot be read: Is a directory"
rmdir "$conf"
mkfifo "$conf" # nobody writes it: who waited for that would hang
mistake "$conf: is not a file"
rm "$conf"
printf 'idle = 50ms\n' > "$conf"
chmod 666 "$conf"
mistake "$conf: every user may write it"
chmod 644 "$conf"
if [ "$(id -u)" = 0 ]; then
    chown 65534 "$conf"
    mistake "$conf: belongs to user 65534"
    chown 0 "$conf"
fi

# Rules end, too; and what holds is what was read last, however often one asks.
printf 'idle = 50ms\n' > "$conf"
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -HUP "$(pid_of daemon)"; done
reload "reload: read $conf again: changed: best-class, rule, idle"
within 20 has_lines 1 "again: need a restart: slice" || fail "it was read once"
has one '"class":"auto","weight":1'
has two '"class":"auto","weight":2'
: > "$dir/go"
expect_pass one two
expect_empty
stop_daemon
