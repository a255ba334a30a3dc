#!/bin/sh
# mux-ctl trim: that of a user takes nothing from the programs of others; root's takes all. The memory of paused programs
# leaves the GPU by it, and comes back. The status names who or which rule keeps a program, or its memory, off the GPU.
. "$(dirname "$0")/lib.sh"
export SIMCUDA_NO_COUNTERS=1 # trials move memory, too
need_size
need_stranger
MiB=$((1 << 20))

patience=60
trim() {
    "$@" "$ctl" trim > "$dir/trim.out" 2>&1 || fail "mux-ctl trim: $(cat "$dir/trim.out")"
}

# has NAME BYTES: it has so much of the GPU.
has() {
    is_up && [ "$(app_number "$(pid_of "$1")" resident_bytes)" = "$2" ]
}

# says NAME TEXT: that is a part of its reason. Blanks are gone from both.
says() {
    is_up && app_has "$(pid_of "$1")" "\"why\":\"[^\"]*$(echo "$2" | tr -d ' ')"
}

# --- programs that only read, and take turns ---

start_daemon --pinned 768M
for i in 1 2; do
    app "reader$i" linked --mode readonly --bytes 96M --allocs 4 --iterations 3 --seed "$i" --until "$dir/enough"
    await_ready "reader$i"
done
has_settled() { # what comes back has its copy still
    is_up && [ "$(gpu bytes_clean)" -gt $((512 * MiB)) ]
}
within "$patience" has_settled || fail "all is copied: $(gpu bytes_clean) bytes were not"
stranger_app guest --bytes 24M --allocs 1 --iterations 1 # its frames are nobody's then
expect_pass guest
take_status
out=$(gpu bytes_out) switches=$(gpu switches)
while ! has_switched $((switches + 12)); do
    trim $stranger
done
[ "$(gpu bytes_out)" -le $((out + 64 * MiB)) ] || # a chunk or two that were just being copied
    fail "after another user's trims, $((($(gpu bytes_out) - out) / MiB)) MiB were copied again"
out=$(gpu bytes_out)
are_copied() {
    trim
    is_up && [ "$(gpu bytes_out)" -ge $((out + 96 * MiB)) ]
}
within "$patience" are_copied || fail "root's trim drops no copies"
touch "$dir/enough"
expect_pass reader1 reader2
rm "$dir/enough"
stop_daemon

# --- paused programs ---

start_daemon --gpu-budget 400M --rule 'command=gm_worker_dlsym* paused' --rule 'user=65534 user-gpu=40M'
app roots linked --bytes 64M --allocs 2 --iterations 3 --seed 1 --until "$dir/enough"
stranger_app guests --bytes 48M --allocs 6 --iterations 3 --seed 2 --until "$dir/enough"
app ruled dlsym --bytes 16M --allocs 1 --iterations 3 --seed 3 --until "$dir/enough"
await_ready roots
await_ready guests
within "$patience" has_state ruled paused || fail "the rule does not pause it"
says ruled 'paused by the rule command=gm_worker_dlsym\* paused' || fail "which rule? $(app_of "$(pid_of ruled)")"
within "$patience" says guests 'MiB may not be on the GPU: above user-gpu=40M by the rule user=65534 user-gpu=40M' ||
    fail "what keeps it off the GPU? $(app_of "$(pid_of guests)")"
"$ctl" pause "$(pid_of roots)" > "$dir/said" || fail "$(cat "$dir/said")"
$stranger "$ctl" pause "$(pid_of guests)" > "$dir/said" || fail "$(cat "$dir/said")"
for who in roots guests; do
    within "$patience" has_state $who paused || fail "$who is not paused"
done
within "$patience" says roots '64 MiB leave the GPU when anybody wants them, or by mux-ctl trim; paused by root' ||
    fail "who paused it? $(app_of "$(pid_of roots)")"
free=$(gpu device_free_bytes)
theirs=$(app_number "$(pid_of guests)" resident_bytes)
trim $stranger
grep -q "given back: $((theirs / MiB)) MiB of the GPU" "$dir/trim.out" || fail "the user's trim: $(cat "$dir/trim.out")"
has guests 0 || fail "it is on the GPU after its user's trim: $(app_of "$(pid_of guests)")"
has roots $((64 * MiB)) || fail "a user's trim moved root's program: $(app_of "$(pid_of roots)")"
[ "$(gpu device_free_bytes)" -ge $((free + theirs)) ] || fail "the GPU has no more free than before"
says guests 'on the GPU is only its CUDA context (some 500 MiB) and what the driver keeps; paused by nobody' ||
    fail "who paused it? $(app_of "$(pid_of guests)")"
trim
grep -q 'given back: 64 MiB of the GPU' "$dir/trim.out" || fail "root's trim: $(cat "$dir/trim.out")"
has roots 0 || fail "it is on the GPU after root's trim"
[ "$(gpu used_bytes)" = 0 ] && [ "$(gpu cached_bytes)" = 0 ] || fail "something is left: $(cat "$dir/status.json")"
for who in roots guests ruled; do
    "$ctl" resume "$(pid_of $who)" > "$dir/said" 2>&1 || fail "$(cat "$dir/said")"
done
within "$patience" has roots $((64 * MiB)) || fail "it does not come back"
touch "$dir/enough"
expect_pass roots guests ruled
expect_empty
stop_daemon
