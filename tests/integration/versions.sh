#!/bin/sh
# A program and a daemon whose protocol is one version apart share the GPU, either way round, and a daemon of the next or the
# last version takes the programs over as they are.
. "$(dirname "$0")/lib.sh"
now=$shim
next=$BUILD/tests/versions/libgpumux_next.so
[ -f "$next" ] || skip "this build has no other version"

# start VERSION: a daemon of it.
start() {
    spawn daemon "$1" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --slice 50ms --idle 50ms
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start: $(cat "$dir/daemon.out")"
}

# change VERSION: another daemon in its place.
change() {
    kill -KILL "$(pid_of daemon)"
    await daemon
    start "$1"
    grep -q "restarted in .*: 2 programs of the daemon before may come back" "$dir/daemon.out" ||
        fail "not both are taken over: $(cat "$dir/daemon.out")"
    within "$patience" are_back || fail "not both are back: $(cat "$dir/daemon.out")"
    take_status
    within "$patience" has_switched $(($(gpu switches) + 4)) || fail "nobody takes turns under the $1"
}

are_back() {
    [ "$(grep -c 'is back, [0-9.]* s after' "$dir/daemon.out")" = 2 ]
}

start "$BUILD/daemon/gpumuxd"
shim=$now
orphan old linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
shim=$next
orphan new linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
within "$patience" has_switched 4 || fail "nobody takes turns"
change "$BUILD/tests/versions/gpumuxd_next"
app newer linked --bytes 32M --iterations 2 --seed 3
shim=$now
app older linked --bytes 32M --iterations 2 --seed 4
expect_pass newer older
change "$BUILD/daemon/gpumuxd"
: > "$dir/enough"
expect_pass old new
expect_empty
for app in old new; do
    [ "$(grep -c 'gpumuxd is back' "$dir/$app.log")" = 2 ] || fail "$app was not taken over twice"
done
