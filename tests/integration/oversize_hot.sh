#!/bin/sh
# Programs larger than the budget (--oversize host): what came first makes way for what comes later, and what is used most
# comes to the GPU, in exchange for what is used least. Every byte verifies while chunks change places, with and without
# another program, and when a program is killed in the middle of it nothing is left behind.
. "$(dirname "$0")/lib.sh"
without_keeper

# 80 MiB of these programs' 240 do not fit: a third of what they take.
third=$((80 * 1024 * 1024 / shrink))
# Of the first buffer of 80 MiB, what is large enough to make way.
first=$((64 * 1024 * 1024 / shrink))

# has_exchanged NAME BYTES: so much was brought to the GPU by exchanges; or the program has ended.
has_exchanged() {
    has_ended "$1" && return
    take_status
    exchanged=$(app_number "$(pid_of "$1")" exchanged_bytes)
    [ "${exchanged:-0}" -ge "$2" ]
}

# expect_exchanges NAME BYTES: while it runs; and as much as ever is mapped on the host. Then programs with --until "$dir/enough" may end.
expect_exchanges() {
    within "$patience" has_exchanged "$1" "$2"
    on_host=$(app_number "$(pid_of "$1")" on_host_bytes)
    say "$1: ${exchanged:-no} bytes exchanged, ${on_host:-no} on the host"
    [ "${exchanged:-0}" -ge "$2" ] || fail "$1: not $2 bytes of hot chunks were brought to the GPU"
    [ "${on_host:-0}" -ge "$third" ] || fail "$1: ${on_host:-no} bytes are on the host, not $third"
    touch "$dir/enough"
}

# exchanged_in_all NAME [BYTES-SO-FAR]: until it ends; into $all.
exchanged_in_all() {
    all=${2:-}
    until has_ended "$1"; do
        is_up && exchanged=$(app_number "$(pid_of "$1")" exchanged_bytes) && all=${exchanged:-$all}
        sleep 0.2
    done
    [ -n "$all" ] || fail "$1 ended before status told of it"
}

# Its gate is closed for an exchange: alone, a program has no other reason to be loaded.
is_exchanging() {
    is_up && app_has "$(pid_of "$1")" '"state":"loading"'
}

await_exchange() {
    await_ready "$1"
    within "$patience" is_exchanging "$1" || fail "$1: no exchange begins"
}

# Nothing is left of any program, in no tier.
is_given_back() {
    is_up && [ "$(gpu_tier pinned_cap_bytes)" -eq 1073741824 ]
}

expect_nothing() {
    rm -f "$dir/enough"
    expect_empty
    within "$patience" is_given_back || fail "only $(gpu_tier pinned_cap_bytes) bytes of pinned memory are left"
}

# expect_said TEXT: by the daemon, so that what is tested has happened.
expect_said() {
    grep -q "$1" "$dir/daemon.out" || fail "the daemon did not say: $1"
}

start_daemon --oversize host --pinned 1G
# With nothing to gain: nobody disturbs it. Where the machine is so slow that a window sees a pass or two, memory that is
# used alike looks otherwise: then once more.
for try in 1 2 3 4 5; do
    app even linked --bytes 240M --allocs 3 --seconds 4 --seed 1
    exchanged_in_all even
    expect_pass even
    expect_nothing
    [ "$all" != 0 ] || break
done
[ "$all" = 0 ] || fail "even: $all bytes changed places, and some in each of $try tries"

# The first buffer makes way for the last one, until it turns out to be the most used one; then it stays (or comes once more,
# where the machine is so slow that a report sees little).
app hot linked --mode hot --bytes 240M --allocs 3 --seconds 8 --seed 2 --until "$dir/enough"
await_ready hot
expect_exchanges hot "$first"
exchanged_in_all hot "$exchanged"
[ "$all" -ge "$first" ] && [ "$all" -le "$((2 * third))" ] || fail "hot: $all bytes changed places, not $first to $((2 * third))"
expect_pass hot
expect_nothing

# Its use changes, again and again; beside another program, with switches.
app turns linked --mode turns --hold 3000 --bytes 240M --allocs 3 --seconds 15 --seed 3 --until "$dir/enough"
app other linked --bytes 96M --allocs 2 --seconds 15 --pause 100 --seed 4 --until "$dir/enough"
await_ready turns
expect_exchanges turns "$((third / 2))"
await_switches 2
expect_pass turns other
expect_switches 2
expect_nothing
stop_daemon

# With slow copies, so that exchanges last: memory is given back and programs are killed in the middle of them.
export SIMCUDA_COPY_RATE=150M
start_daemon --oversize host --pinned 1G
unset SIMCUDA_COPY_RATE
app guests linked --mode guests --hold 1500 --bytes 240M --allocs 3 --seconds 15 --seed 5 --until "$dir/enough"
await_ready guests
expect_exchanges guests "$((third / 2))"
expect_pass guests
expect_nothing
for delay in 0 0.1 0.3; do
    app killed linked --mode turns --hold 2000 --bytes 240M --allocs 3 --seconds 60 --seed 6
    await_exchange killed
    sleep "$delay"
    kill -KILL "$(pid_of killed)"
    expect_nothing
done

# The program fails to map a chunk in its new place: that is tried again.
export SIMCUDA_FAIL=cuMemMap:10
app refused linked --mode hot --bytes 240M --allocs 3 --seconds 8 --seed 7 --until "$dir/enough"
unset SIMCUDA_FAIL
await_ready refused
expect_exchanges refused "$first"
expect_said 'could not map'
expect_pass refused
expect_nothing
stop_daemon

# The daemon ends in the middle of it, and first brings the exchange to its end. Or it is killed: a program whose memory
# is between two places is told so, and never sees it as it is.
for signal in TERM KILL; do
    rm -f "$GPUMUX_SOCKET"
    export SIMCUDA_COPY_RATE=100M
    start_daemon --oversize host --pinned 1G
    unset SIMCUDA_COPY_RATE
    seconds=60
    [ "$signal" = KILL ] || seconds=5
    app orphan linked --mode hot --bytes 240M --allocs 3 --seconds "$seconds" --seed 9
    await_exchange orphan
    kill -"$signal" "$(pid_of daemon)"
    await daemon
    if [ "$signal" = TERM ]; then
        [ "$code" = 0 ] || fail "the daemon ended with $code"
        expect_pass orphan
        continue
    fi
    await orphan
    is_lost || fail "orphan: code $code: $line"
done
rm -f "$GPUMUX_SOCKET"

# The system refuses host memory for some of it: that part waits for the next time.
refused=11 # of the frames that exchanges need; those before are the program's own
[ "$shrink" = 1 ] || refused=7
export SIMCUDA_FAIL=cuMemCreate:$refused
start_daemon --oversize host --pinned 1G
unset SIMCUDA_FAIL
app hot linked --mode hot --bytes 240M --allocs 3 --seconds 12 --seed 8 --until "$dir/enough"
await_ready hot
expect_exchanges hot "$first"
expect_said 'pinned memory refused'
expect_pass hot
expect_nothing
stop_daemon
