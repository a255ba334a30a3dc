#!/bin/sh
# The disk tier is full, fails, or cannot be read: nobody loses a byte, turns go on where they can, and the log and the status say
# why not.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"

need_size

# A disk that is full in the middle of switches: chunks keep their old copy, the log says so, and turns go on through the memory
# that there is; when there is room again the disk is used as before, with no byte lost.
part full
start_daemon_on_faulty_disk
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 3 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" grep -q 'No space left' "$dir/daemon.out" || fail "the log does not say that the disk is full"
is_up
within "$patience" has_switched $(($(gpu switches) + 6)) || fail "nobody needs the disk, and nobody has turns"
check_daemon
rm "$dir/full"
take_status
lowered=$(json_after moved pinned_to_disk_bytes "$dir/status.json")
is_lowering() {
    is_up && [ "$(json_after moved pinned_to_disk_bytes "$dir/status.json")" -gt "$lowered" ]
}
within "$patience" is_lowering || fail "the disk works again, and is not used"
touch "$dir/enough"
for i in 1 2 3; do expect_pass "app$i"; done
expect_empty
stop_daemon

# 30 % of the writes to a disk fail, and so most copies of a chunk to it. Programs that can have their turns without it go on
# taking turns, and when it works again all end right.
part flaky
export GM_FAULTY_PERCENT=30
start_daemon_on_faulty_disk
unset GM_FAULTY_PERCENT
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --iterations 2 --seed "$i" --until "$dir/enough"
done
for i in 1 2 3 4; do await_ready "app$i"; done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" grep -q 'pinned memory to disk failed' "$dir/daemon.out" || fail "no write failed"
is_up
before=$(gpu switches)
has_rounds() {
    is_up && [ "$(gpu switches)" -gt $((before + 15)) ]
}
within 10 has_rounds || fail "$(($(gpu switches) - before)) switches while the disk fails: nobody has turns"
rm "$dir/full"
touch "$dir/enough"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

# The disk cannot be written, and without it there is too little room for everybody's turns: those wait, and keep what they have.
# The status says so while somebody waits for that, and the log says it once.
part "full below paged memory"
start_daemon_on_faulty_disk --paged 96M
for i in 1 2 3 4 5; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 4 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" is_told_of_disk || fail "status does not say that a lower tier fails"

# Some times the disk is tried again.
told=0
for _ in $(seq 25); do
    sleep 0.1
    ! is_told_of_disk || told=$((told + 1))
done
[ "$told" -ge 3 ] || fail "the disk is full, and in 25 looks $told say so"
[ "$(grep -c 'No space left' "$dir/daemon.out")" = 1 ] || fail "the log tells of the full disk more than once, or not"
check_daemon

# Nobody needs it any more, and it works again: nothing is said of it, though nothing is written either.
for i in 3 4 5; do kill -KILL "$(pid_of "app$i")"; done
rm "$dir/full"
is_not_told() {
    is_up && ! grep -q 'a lower tier fails' "$dir/status.json"
}
within "$patience" is_not_told || fail "status still says that a lower tier fails"
for _ in $(seq 10); do
    sleep 0.1
    take_status
    ! grep -q 'a lower tier fails' "$dir/status.json" || fail "status says again that a lower tier fails"
done
touch "$dir/enough"
for i in 1 2; do expect_pass "app$i"; done
expect_empty
stop_daemon

# Two programs as large as the budget, which fit without the disk: while it is full the turns go on through what is free of pinned
# memory, and so they do when it can be written again.
part "not needed"
start_daemon_on_faulty_disk --pinned 256M
for i in 1 2; do
    app "app$i" linked --bytes 160M --allocs 1 --iterations 4 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
for _ in 1 2 3; do
    touch "$dir/full"
    is_up
    wanted=$(($(gpu switches) + 4))
    within "$patience" has_switched "$wanted" || fail "the disk is full, and nobody gets a turn without it"
    rm "$dir/full"
    take_status
    wanted=$(($(gpu switches) + 4))
    within "$patience" has_switched "$wanted" || fail "the disk works, and nobody gets a turn: $(tail -n 3 "$dir/daemon.out")"
done
touch "$dir/enough"
for i in 1 2; do expect_pass "app$i"; done
expect_empty
stop_daemon

# A part of the disk cannot be read: programs with data there wait, the log and the status say so, and the others run to their
# end. Nothing was lost: when it can be read again, those that waited run to their end as well.
part unreadable
export GM_FAULTY_READ="$dir/bad" GM_FAULTY_BYTES=$((64 << 20))
start_daemon_on_faulty_disk
unset GM_FAULTY_READ GM_FAULTY_BYTES

for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 4 --seconds 1 --seed "$i"
done
within "$patience" uses_disk $((64 << 20)) || fail "the disk was not used enough"
touch "$dir/bad"

within "$patience" is_told_of_disk || fail "status does not say that a lower tier fails"
grep -q 'Input/output error' "$dir/daemon.out" || fail "the log does not say that the disk cannot be read"

# At most 64 of 384 MiB cannot be read: not everybody's.
left() {
    for i in 1 2 3 4; do has_ended "app$i" || echo "app$i"; done
}
some_ended() {
    [ "$(left | wc -l)" -lt 4 ]
}
only_those_told_of() {
    is_up || return 1
    for left_name in $(left); do
        app_has "$(pid_of "$left_name")" 'alowertierfails' || has_ended "$left_name" || return 1
    done
}
within "$patience" some_ended || fail "nobody runs to the end"
within "$patience" only_those_told_of || fail "left: $(left), not all of them with a reason"
check_daemon
say "ended beside the bad spot: $((4 - $(left | wc -l))) of 4"
rm "$dir/bad"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

# A disk tier larger than what is free: the daemon starts, and promises what is free, less 5 %, as that is now. Who was promised
# more waits with a reason when others fill the disk, and goes on when there is room; nobody loses a byte.
part "less free than asked for"
# free_is MIB: others leave so much.
free_is() {
    echo "$1" > "$dir/free.new"
    mv "$dir/free.new" "$dir/free"
}
# promises TEST MIB: what it promises of the disk.
promises() {
    is_up && [ "$(gpu_tier disk_cap_bytes)" "$1" $(($2 << 20)) ]
}

mkdir -p "$dir/disk"
free_is 400
export GM_FAULTY_FREE="$dir/free"
spawn daemon env LD_PRELOAD="$BUILD/tests/programs/libgm_faulty_disk.so" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" \
    --gpu-budget 96M --pinned 288M --disk "$dir/disk:2G" --slice 1s --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
! has_ended daemon || fail "the daemon did not start: $(cat "$dir/daemon.out")"
grep -q "$dir/disk: 2 GiB asked for, 400 MiB free there now" "$dir/daemon.out" || fail "it does not say both: $(cat "$dir/daemon.out")"
within "$patience" promises -eq 352 || fail "it promises $(gpu_tier disk_cap_bytes) bytes" # 380, in whole slabs

# All of them need 480 MiB. There are 96 on the GPU, 288 of pinned memory, and what the disk got before it was full.
apps="one two three four five"
for name in $apps; do
    app "$name" linked --bytes 96M --allocs 1 --iterations 1 --seed ${#name} --until "$dir/enough"
done
is_promised() {
    is_up && [ "$(gpu committed_bytes)" = $((480 << 20)) ]
}
within "$patience" is_promised || fail "they were not promised all"
free_is 0
within "$patience" promises -lt 96 || fail "it still promises $(gpu_tier disk_cap_bytes) bytes"
is_told() {
    is_up && grep -q 'the disk has less room than --disk says' "$dir/status.json"
}
within "$patience" is_told || fail "status does not say that the disk lacks room"
touch "$dir/enough"
free_is 2000
# shellcheck disable=SC2086 # names
expect_pass $apps
expect_empty
stop_daemon
