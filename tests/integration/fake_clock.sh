#!/bin/sh
# A program whose clock is faked: standing still, 100 times too fast or too slow, jumping. Beside another one, with which
# it does not fit, both have turns and end right.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "the clock of a sanitized program is the sanitizer's"
start_daemon

has_turns() {
    is_up && [ "$(app_number "$(pid_of faked)" switches)" -gt 3 ] && [ "$(app_number "$(pid_of other)" switches)" -gt 3 ]
}
for clock in still fast slow jumps; do
    rm -f "$dir/enough" "$dir/faked.ready"
    spawn faked env GM_FAKE_CLOCK=$clock LD_PRELOAD="$shim:$BUILD/tests/programs/libgm_fake_clock.so" "$(worker linked)" \
        --ready "$dir/faked.ready" --bytes 96M --iterations 4 --seed 1 --until "$dir/enough"
    app other linked --bytes 96M --iterations 4 --seed 2 --until "$dir/enough"
    for i in faked other; do await_ready $i; done
    within 20 has_turns || fail "$clock: the two do not take turns"
    touch "$dir/enough"
    expect_pass faked other
    ! grep -q 'does not answer' "$dir/daemon.out" || fail "$clock: an answer came late"
done
expect_empty
stop_daemon
