#!/bin/sh
# Programs with their own virtual memory management share the GPU.
. "$(dirname "$0")/lib.sh"
without_keeper

# Programs with their own virtual memory management share the GPU: ranges that grow handle by handle, one handle at many
# addresses, data that moves from range to range, wrong calls; what they mapped is swapped like other memory. Two beside each
# other, threads that map while the program is swapped out, one beside a program of plain allocations.
part turns
start_daemon
app one linked --mode vmm --bytes 96M --allocs 3 --iterations 3 --seed 1 --go "$dir/go" --until "$dir/enough"
app two proc --mode vmm --bytes 96M --allocs 2 --iterations 3 --seed 2 --go "$dir/go" --until "$dir/enough"
await_ready one
is_up && total=$(app_number "$(pid_of one)" total_bytes) && [ "${total:-0}" -ge $((96 * 1048576 / shrink - (8 << 20))) ] ||
    fail "the daemon knows ${total:-nothing} of the first program's memory"
: > "$dir/go"
await_switches 5
expect_pass one two
expect_switches 5
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"
expect_empty

app mappers linked --mode mappers --threads 3 --bytes 72M --iterations 6 --seconds 1 --seed 3
app plain linked --bytes 96M --iterations 6 --seconds 1 --seed 4
expect_pass mappers plain
expect_empty

# cuMemGetInfo and the daemon count a handle once, however often it is mapped, as long as it or a mapping of it lives; the daemon
# counts what was exported as memory that cannot be swapped.
part counts
size=$((32 * 1048576 / shrink))

free_at() {
    sed -n "s/^$1=//p" "$dir/info.out"
}

# expect_used WHEN HANDLES
expect_used() {
    used=$(($(free_at start) - $(free_at "$1")))
    [ $used = $(($2 * size)) ] || fail "$3: $1: $used bytes are used, $2 handles of $size"
}

is_counted() {
    is_up && [ "$(app_number "$(pid_of info)" total_bytes)" = $size ]
}

for kind in virtual real; do
    rm -f "$dir/go"
    export GPUMUX_VMM_EXPORT=$kind
    app info linked --mode vmminfo --bytes 32M --go "$dir/go"
    await_ready info
    within "$patience" is_counted || fail "$kind: the daemon counts $(app_number "$(pid_of info)" total_bytes)"
    touch "$dir/go"
    await info
    case $code,$line in
    "0,PASS "*) say "$kind: $line" ;;
    *) fail "$kind: $code: $line" ;;
    esac
    expect_used created 1 $kind
    expect_used mapped 1 $kind
    expect_used released 1 $kind
    expect_used both 2 $kind
    expect_used exported 2 $kind
    expect_used one 1 $kind
    expect_used end 0 $kind
    expect_empty
done
unset GPUMUX_VMM_EXPORT

# A program maps, unmaps and asks about its own handles while it is paused and its memory is out: nothing waits, and what it did
# is in place when it runs again.
part paused
rounds() {
    n=$(cat "$dir/rounds" 2> /dev/null)
    echo "${n:-0}"
}

goes_on() {
    [ "$(rounds)" -ge "$1" ]
}

is_evicted() {
    is_up && evicted=$(app_number "$(pid_of one)" resident_bytes) &&
        [ "$evicted" -lt $((40 * 1048576 / shrink)) ]
}

# The other one goes on when the first is paused: then it needs the room.
app two linked --bytes 128M --allocs 4 --iterations 10 --seed 2 --go "$dir/go"
await_ready two
app one linked --mode mappers --threads 2 --bytes 96M --iterations 3 --seed 1 --signal "$dir/rounds" \
    --until "$dir/enough"
await_ready one
"$ctl" pause "$(pid_of one)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state one paused || fail "it is not paused: $(app_of "$(pid_of one)")"
touch "$dir/go"
within "$patience" is_evicted || fail "it keeps its memory: $(app_of "$(pid_of one)")"
from=$(rounds)
within "$patience" goes_on $((from + 20)) || fail "it did $(rounds) rounds, $from of them before it was paused"
has_state one paused || fail "it is not paused any more"
say "$(($(rounds) - from)) rounds while paused"
"$ctl" resume "$(pid_of one)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
touch "$dir/enough"
expect_pass one two
expect_empty

# Exporting a handle when that cannot be: the program is told, and has lost nothing.
part "exports at bad moments"
# At bad moments: beside a kernel that waits for the host, beside a capture. It is told, and nothing is lost.
app moments linked --mode exports --bytes 64M --seed 7
app other linked --bytes 128M --iterations 5 --seed 8
expect_pass moments other
grep -q '^beside a spinning kernel: 600, beside a capture: 900$' "$dir/moments.out" ||
    fail "it was told: $(head -n 1 "$dir/moments.out")"
expect_empty

# The driver has no memory for it, and then refuses one step after the other: an error, and everything as it was.
for fault in cuMemCreate:1 cuMemAddressReserve:7 cuMemcpyDtoD:1; do
    export SIMCUDA_FAIL="$fault"
    app short linked --mode sharers --threads 1 --bytes 32M --iterations 30 --seed 9
    unset SIMCUDA_FAIL
    await short
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*": error 2 CUDA_ERROR_OUT_OF_MEMORY" | \
        "3,FAIL "*" mismatches=0 "*": error 999 CUDA_ERROR_UNKNOWN") say "$fault: $line" ;;
    *) fail "$fault: ended with $code: $line" ;;
    esac
    expect_empty
done

# Handles that may be exported are swapped like others until they are: then their memory stays where it is, the data with it,
# while other threads of the program work on it and the program takes turns with another.
part exported
app one linked --mode sharers --threads 2 --bytes 64M --iterations 3 --seed 1 --until "$dir/enough"
app two linked --bytes 128M --iterations 3 --seed 2 --until "$dir/enough"
await_switches 3
expect_pass one two
expect_switches 3
expect_empty

app three proc --mode sharers --threads 4 --bytes 96M --iterations 6 --seed 3
app four linked --mode vmm --bytes 80M --iterations 6 --seed 4
expect_pass three four
expect_empty

# The daemon goes while handles are exported.
app five linked --mode sharers --threads 2 --bytes 64M --iterations 20 --seconds 2 --seed 5
await_ready five
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass five
rm -f "$GPUMUX_SOCKET"

# Made real from the start: nothing of it is the daemon's.
start_daemon
GPUMUX_VMM_EXPORT=real
export GPUMUX_VMM_EXPORT
app six linked --mode sharers --threads 2 --bytes 64M --iterations 10 --seed 6
expect_pass six
expect_empty
unset GPUMUX_VMM_EXPORT
stop_daemon
