#!/bin/sh
# A container's users count as the user who has their ids (/etc/subuid): places, GPU time and what rules say are that user's.
# The status shows who they are.
. "$(dirname "$0")/lib.sh"
need_stranger
[ -e /etc/subuid ] || skip "there is no /etc/subuid to put another one over"
unshare -m true 2> /dev/null || skip "no mount namespace can be made"
echo 65534:300000:65536 > "$dir/subuid"

# The daemon alone sees that file.
shared() {
    spawn daemon unshare -m sh -c 'mount --bind "$0" /etc/subuid && exec "$@"' "$dir/subuid" "$BUILD/daemon/gpumuxd" \
        --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --slice 100ms --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
    chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
}

# inner NAME UID ARGUMENT...: as stranger_app, as the user of that number.
inner() {
    inner_name=$1 inner_uid=$2 stranger_before=$stranger
    shift 2
    stranger="setpriv --reuid=$inner_uid --regid=$inner_uid --clear-groups"
    stranger_app "$inner_name" --bytes 8M --allocs 1 --iterations 1 --until "$dir/enough" "$@"
    stranger=$stranger_before
    await_ready "$inner_name"
}

shared --max-apps 8 --rule 'user=65534 weight=0.5 user-gpu=20M'
app mine linked --bytes 8M --allocs 1 --iterations 1 --until "$dir/enough"
await_ready mine
inner theirs 65534
inner first 300000
inner second 365535
inner alien 365536 --until "$dir/alien.end"
take_status
app_has "$(pid_of first)" '"uid":300000' || fail "the status does not show who it is"
for i in first second; do
    app_has "$(pid_of $i)" '"weight":0.5' || fail "the rule for its user is not for $i"
done
! app_has "$(pid_of alien)" '"weight":0.5' || fail "the rule is for who is behind the range"
touch "$dir/alien.end"
expect_pass alien
# Each of these fits below user-gpu=; together they do not.
fits() {
    take_status
    had=0
    for i in theirs first second; do had=$((had + $(app_number "$(pid_of $i)" resident_bytes))); done
    [ "$had" -gt 0 ] && [ "$had" -le $((20 << 20)) ]
}
within "$patience" fits || fail "they have $had bytes of the GPU, above their user's total"
# Places: six of eight are one user's at most.
for i in 1 2 3 4; do
    inner "more$i" $((300001 + i))
done
grep -q 'refused: 6 programs of user 65534 are served already, the most for one user' "$dir/daemon.out" ||
    fail "a container has more places than its user: $(cat "$dir/daemon.out")"
touch "$dir/enough"
expect_pass mine theirs first second more1 more2 more3 more4
rm "$dir/enough"
stop_daemon

# Time: of two users each has half.
shared
app mine linked --bytes 8M --allocs 1 --iterations 1 --until "$dir/enough"
await_ready mine
inner theirs 65534
inner first 300000
inner second 300001
within "$patience" slices mine=6144 theirs=2048 first=2048 second=2048 || fail "a container's users have time of their own"
touch "$dir/enough"
expect_pass mine theirs first second
stop_daemon
