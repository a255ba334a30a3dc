#!/bin/sh
# Programs of every kind share a GPU that is too small for them, and verify all of their memory: each way of reaching the driver, and
# each kind of work, beside each other.
. "$(dirname "$0")/lib.sh"
start_daemon --pinned 640M

# Linked, by dlsym, and by cuGetProcAddress as a static cudart asks: all are under the gate, or their results would be wrong, and all
# are known to the daemon with all of their memory.
part ways
for way in linked dlsym proc; do
    app "$way" "$way" --bytes 64M --allocs 3 --iterations 3 --seed 7 --until "$dir/enough"
done
counts_all() {
    is_up || return 1
    for way in linked dlsym proc; do
        bytes=$(app_number "$(pid_of "$way")" total_bytes)
        [ "${bytes:-0}" -ge $((64 * 1024 / shrink * 1024)) ] || return 1
    done
}
within "$patience" counts_all || fail "the status does not count the memory of all: $(cat "$dir/status.json")"
app_has "$(pid_of linked)" '"name":"gm_worker' || fail "the status does not name the first program"
expect_turns 5 linked dlsym proc
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"
for way in linked dlsym proc; do
    for mode in ptds graph; do
        app "$way-$mode" "$way" --mode $mode --bytes 64M --iterations 4 --seed 8
    done
done
for way in linked dlsym proc; do expect_pass "$way-ptds" "$way-graph"; done
expect_empty

# Ten at three times the budget: copies of every plain form, vector addition, matrix multiplication, sweeps, memory that comes and
# goes, graphs, captures that stay open for several slices.
part work
app copies linked --mode copies --bytes 72M --iterations 4 --seed 1
app vector proc --mode vector --bytes 48M --iterations 3 --seed 2 --until "$dir/enough"
app matmul linked --mode matmul --allocs 8 --iterations 1 --seed 3
app sweep dlsym --mode sweep --bytes 48M --iterations 3 --seed 4 --until "$dir/enough"
app churn linked --mode churn --bytes 64M --iterations 3 --seed 5 --until "$dir/enough"
app graph linked --mode graph --bytes 48M --iterations 3 --seed 6 --until "$dir/enough"
app capture linked --mode capture --bytes 48M --iterations 4 --hold 200 --seed 7 --until "$dir/enough"
app streams linked --mode streams --bytes 48M --iterations 3 --seed 8 --until "$dir/enough"
for seed in 1 2; do
    app "verify$seed" linked --bytes 48M --allocs "$seed" --iterations 3 --seed "$seed" --until "$dir/enough"
done
expect_turns 20 copies vector matmul sweep churn graph capture streams verify1 verify2

# A kernel that counts until the host says so, and a queue of 16 kernels: their counters lie all over the memory and are right at the
# end, whatever was moved between two kernels. A kernel that waits for the host, far beyond the drain deadline.
part "work that outlasts a turn"
app count dlsym --mode count --bytes 96M --hold 100 --iterations 6 --signal "$dir/steps" --until "$dir/enough"
app queue linked --mode queue --bytes 96M --hold 5 --iterations 6 --until "$dir/enough"
app spin linked --mode spin --bytes 96M --hold 2500 --iterations 1 --seed 1 --until "$dir/enough"
expect_turns 5 count queue spin
[ "$(cat "$dir/steps")" -gt 0 ] || fail "mode count did not tell how far its kernel was"

# Free memory moves between pools and cuMemAlloc, streams wait for what others freed, and CUDA_ERROR_OUT_OF_MEMORY is the answer when
# nothing is left, alone and beside another program.
part "pools that are short"
app alone linked --mode short --bytes 160M --allocs 10 --iterations 1
expect_pass alone
app one proc --mode short --bytes 160M --allocs 5 --iterations 1 --seed 1 --until "$dir/enough"
app two linked --mode async --bytes 96M --iterations 4 --seed 2 --until "$dir/enough"
expect_turns 2 one two

# Memory that a program has not written reads as zero, whoever had it before: each program fills what it gets, so that nothing is zero
# by chance. As a real driver's, the simulated driver's memory is new each time.
part "new memory"
for i in 1 2; do
    app "long$i" linked --bytes 96M --allocs 12 --iterations 1 --seed "$i" --until "$dir/enough"
done
for i in 1 2; do await_ready "long$i"; done
for round in 1 2; do
    app "fresh$round" proc --mode fresh --bytes 64M --allocs 8 --seed "$((10 + round))"
    app "large$round" linked --mode fresh --bytes 64M --allocs 1 --seed "$((20 + round))"
    app "handles$round" dlsym --mode handles --bytes 64M --allocs 16 --seed "$((30 + round))"
    expect_pass "fresh$round" "large$round" "handles$round"
done
expect_turns 4 long1 long2
native alone linked --mode fresh --bytes 64M --allocs 8
expect_pass alone
native alone linked --mode handles --bytes 64M --allocs 8
expect_pass alone

# The only room is in free frames that no running program holds: they are destroyed at once, without waiting for an event that nobody
# will cause.
part "free frames"
app one linked --bytes 160M --allocs 5 --iterations 2 --seed 1
expect_pass one
app two linked --bytes 96M --allocs 12 --iterations 2 --seed 2
expect_pass two
expect_empty

# When everything fits, nobody is ever stopped and nothing moves.
part "all fit"
before="$(gpu switches) switches, $(gpu bytes_out) bytes out and $(gpu bytes_in) in"
app one linked --bytes 48M --iterations 10 --seconds 1 --seed 1
app two dlsym --mode graph --bytes 32M --iterations 10 --seconds 1 --seed 2
app three proc --mode ptds --bytes 32M --iterations 10 --seconds 1 --seed 3
expect_pass one two three
expect_empty
after="$(gpu switches) switches, $(gpu bytes_out) bytes out and $(gpu bytes_in) in"
[ "$after" = "$before" ] || fail "everything fits; there were $before, then $after"
stop_daemon
