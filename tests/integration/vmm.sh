#!/bin/sh
# Programs with their own virtual memory management share the GPU: ranges that grow handle by handle, one handle at
# many addresses, data that moves from range to range, wrong calls; what they mapped is swapped like other memory. Two
# beside each other, threads that map while the program is swapped out, one beside a program of plain allocations.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --mode vmm --bytes 96M --allocs 3 --iterations 20 --seconds 2 --seed 1 --go "$dir/go" --until "$dir/enough"
app two proc --mode vmm --bytes 96M --allocs 2 --iterations 20 --seconds 2 --seed 2 --go "$dir/go" --until "$dir/enough"
await_ready one
is_up && total=$(app_number "$(pid_of one)" total_bytes) && [ "${total:-0}" -ge $((96 * 1048576 / shrink - (8 << 20))) ] ||
    fail "the daemon knows ${total:-nothing} of the first program's memory"
: > "$dir/go"
await_switches 5
expect_pass one two
expect_switches 5
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"
expect_empty

app mappers linked --mode mappers --threads 3 --bytes 72M --iterations 20 --seconds 2 --seed 3
app plain linked --bytes 96M --iterations 20 --seconds 2 --seed 4
expect_pass mappers plain
expect_empty
stop_daemon
