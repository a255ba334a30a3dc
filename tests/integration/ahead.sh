#!/bin/sh
# A program that grows has the next piece of a size asked for while it fills this one, where there is plenty of room: it
# is none of the program's until it takes it, it makes nobody wait, and what is not taken goes back.
SIMCUDA_MEMORY=$((2048 / ${GM_SHRINK:-1}))M
. "$(dirname "$0")/lib.sh"

asked() {
    take_status
    json_after totals allocs "$dir/status.json"
}

has_at_most() {
    is_up && [ "$(app_number "$(pid_of "$1")" total_bytes)" -le "$2" ]
}

is_idle() {
    has_state "$1" idle
}


# 80 pieces of 8 MiB, then of 16 MiB each until all is full: a range that is asked for is 20 MiB at most.
# So much pinned memory that what one program is told to be free does not depend on the other.
start_daemon --slice 200ms --gpu-budget 1280M --pinned 1G
for way in linked dlsym proc; do
    before=$(asked)
    app "$way" "$way" --mode grow --bytes 640M --allocs 80 --iterations 1 --hold 2 --go "$dir/$way.go"
    await_ready "$way"
    # What nobody took goes back.
    within "$patience" has_at_most "$way" $(((640 / shrink) << 20)) ||
        fail "it keeps $(app_number "$(pid_of "$way")" total_bytes) bytes"
    ahead=$(($(asked) - before - 80))
    say "$way: 80 pieces, $ahead more asked of the daemon than those"
    # Each piece but the first few was asked for when the one before was there, and so one too many.
    [ "$ahead" -ge 1 ] || fail "nothing was asked for ahead"
    touch "$dir/$way.go"
    expect_pass "$way"
done
expect_empty

# One that grows slowly: nothing is asked for that would have to go back before it is taken.
before=$(asked)
app slow linked --mode grow --bytes 80M --allocs 10 --iterations 1 --hold 120
expect_pass slow
[ $(($(asked) - before)) = 10 ] || fail "$(($(asked) - before - 10)) were asked for ahead of a slow program"

# Two that grow beside each other and fit together: nobody is paused, and both come to their end.
take_status
before=$(gpu switches)
app one linked --mode grow --bytes 400M --allocs 50 --iterations 2 --hold 0 --seed 1 --go "$dir/one.go"
app two proc --mode grow --bytes 400M --allocs 50 --iterations 2 --hold 1 --seed 2 --go "$dir/two.go"
await_ready one
await_ready two
take_status
turns=$(($(gpu switches) - before))
[ "$turns" -le 2 ] || fail "programs that fit together took $turns turns"
# What the one holds takes no room from the other, up to the last byte.
touch "$dir/one.go"
expect_pass one
touch "$dir/two.go"
expect_pass two
expect_empty

# One grows, and just then another has all the rest, which fits to the last chunk: they run side by side.
app late linked --mode late --bytes 640M --allocs 1 --iterations 5 --go "$dir/grown.ready"
await_ready late
before=$(gpu switches)
app grown proc --mode grow --bytes 640M --allocs 80 --iterations 1 --hold 20 --go "$dir/grown.go"
expect_pass late
take_status
turns=$(($(gpu switches) - before))
[ "$turns" -le 3 ] || fail "programs that fit exactly took $turns turns"
touch "$dir/grown.go"
expect_pass grown
expect_empty

# Where they do not fit together nothing is asked for ahead, and both come to their end.
app one linked --mode grow --bytes 660M --allocs 80 --iterations 1 --hold 1 --seed 1
app two proc --mode grow --bytes 660M --allocs 80 --iterations 1 --hold 1 --seed 2
expect_pass one two
expect_empty

# hundredths NAME: of a second that it took.
hundredths() {
    sed -n 's/.* seconds=\([0-9]*\)\.\([0-9][0-9]\).*/\1\2/p' "$dir/$1.out" | sed 's/^0*//'
}

# The memory of the first piece that is asked for ahead, which is when the second came, cannot be mapped: nobody waits
# a second for that, as for a piece itself. Before it two pieces are imported, each of one chunk.
app mapped linked --mode grow --bytes 80M --allocs 10 --iterations 1 --hold 5
expect_pass mapped
rounds=0
while :; do
    rounds=$((rounds + 1))
    export SIMCUDA_FAIL=cuMemImportFromShareableHandle:3
    app unmapped linked --mode grow --bytes 80M --allocs 10 --iterations 1 --hold 5
    unset SIMCUDA_FAIL
    expect_pass unmapped
    [ "$(hundredths unmapped)" -ge $(($(hundredths mapped) + 50)) ] || break
    [ "$rounds" -lt 10 ] || fail "it always waits after memory ahead could not be mapped"
done
grep -q 'could not map' "$dir/daemon.out" || fail "nothing failed"
expect_empty
stop_daemon

# Two pieces, and then all that is free, while the third is on its way, or could not be mapped: there is room for that.
start_default --gpu-budget 512M
for fault in "" cuMemImportFromShareableHandle:3; do
    for round in 1 2 3 4 5 6; do
        [ -z "$fault" ] || export SIMCUDA_FAIL="$fault"
        app all linked --mode fill --bytes 16M --allocs 2 --iterations 1 --hold "$round" --go "$dir/all.go"
        unset SIMCUDA_FAIL
        await_ready all
        take_status
        [ "$(app_number "$(pid_of all)" total_bytes)" -ge $(((500 / shrink) << 20)) ] ||
            fail "it has $(app_number "$(pid_of all)" total_bytes) bytes $fault"
        touch "$dir/all.go"
        expect_pass all
        rm "$dir/all.go"
    done
done
expect_empty
stop_daemon

# The device has less than the daemon's budget, as programs beside gpumux use it too: what fits stays whole, and an
# idle program idle.
native hog linked --bytes 1408M --iterations 1 --go "$dir/hog.go"
await_ready hog
start_daemon --slice 200ms --gpu-budget 1280M --pinned 1G
app rests linked --bytes 200M --iterations 1 --go "$dir/rests.go"
await_ready rests
within "$patience" is_idle rests || fail "rests is not idle"
before=$(gpu switches)
app grown dlsym --mode grow --bytes 400M --allocs 50 --iterations 1 --hold 5 --go "$dir/short.go"
await_ready grown
within "$patience" is_idle grown || fail "grown is not idle"
is_idle rests || fail "rests is not idle any more"
[ "$(gpu switches)" = "$before" ] || fail "programs that fit took $(($(gpu switches) - before)) turns"
touch "$dir/rests.go" "$dir/short.go" "$dir/hog.go"
expect_pass rests grown hog
expect_empty

# The daemon is lost while they grow.
app left linked --mode grow --bytes 640M --allocs 80 --iterations 8 --hold 1 --seed 3
app right dlsym --mode grow --bytes 320M --allocs 40 --iterations 16 --hold 0 --seed 4
await_growing() {
    ! has_ended "$1" || fail "$1 has ended: $(tail -n 1 "$dir/$1.out")"
    take_status
    [ "$(app_number "$(pid_of "$1")" total_bytes)" -gt $((20000000 / shrink)) ]
}
within "$patience" await_growing right || fail "right does not grow"
within "$patience" await_growing left || fail "left does not grow"
kill -9 "$(pid_of daemon)" || fail "the daemon is not there"
expect_pass left right
