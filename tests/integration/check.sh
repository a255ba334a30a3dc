#!/bin/sh
# What crosses the link tells of memory that no launch names. Programs keep on the host what they do not touch; one begins to
# read a part of that through pointers that lie in device memory. It is found, and comes to the GPU. Without counters it
# stays where it is, and where others use the link as well: then programs are slow, right, and status says why.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "the program of the benches does not carry the shim inside"
export SIMCUDA_LINK_FACTOR=64 # a simulated link is slow
mib=$((1024 * 1024))

# feed NAME: in the background, it works until $dir/NAME.stop is there; it is also asked what $dir/NAME.ask says.
feed() {
    fed=0
    until [ -f "$dir/$1.stop" ] || has_ended "$1"; do
        line='run verify 200'
        [ ! -f "$dir/$1.ask" ] || { line=$(cat "$dir/$1.ask"); rm -f "$dir/$1.ask"; }
        echo "$line" >> "$dir/$1.in"
        fed=$((fed + 1))
        until [ "$(wc -l < "$dir/$1.out")" -gt $fed ] || has_ended "$1"; do sleep 0.1; done
    done
}

has_said() {
    ! has_ended "$1" || fail "$1 ended: $(tail -n 1 "$dir/$1.out")"
    grep -q "^$2" "$dir/$1.out"
}

# ask NAME LINE ANSWER
ask() {
    echo "$2" > "$dir/$1.new"
    mv "$dir/$1.new" "$dir/$1.ask"
    within "$patience" has_said "$1" "$3" || fail "$1 does not say $3: $(tail -n 3 "$dir/$1.out")"
}

# pool NAME: a program of 80 MiB in pieces of 8, of which it touches 16. In between its kernels do nothing, so that three do
# not need more than the processors have.
pool() {
    rm -f "$dir/$1.in" "$dir/$1.stop" "$dir/$1.ask"
    mkfifo "$dir/$1.in"
    # It opens the file for both, so it never comes to its end.
    spawn "$1" env LD_PRELOAD="$shim" sh -c 'file=$0; exec "$@" 0<> "$file"' "$dir/$1.in" "$BUILD/bench/bench_app" \
        --bytes 80M --piece 8M --touch 16M --spin-us 10000
    within "$patience" has_said "$1" ready || fail "$1 did not get ready"
    feed "$1" 2> /dev/null &
}

# finish NAME...: all memory is right.
finish() {
    for finished; do
        ask "$finished" check mismatches=
        grep -q '^mismatches=0' "$dir/$finished.out" || fail "$finished is wrong: $(tail -n 3 "$dir/$finished.out")"
        touch "$dir/$finished.stop"
        kill -KILL "$(pid_of "$finished")"
        await "$finished"
    done
}

# has_on_host NAME MIB: at least
has_on_host() {
    is_up && [ "$(app_number "$(pid_of "$1")" on_host_bytes)" -ge $(($2 * mib)) ]
}

# Bytes that kernels read from the host so far: what crossed the link, less what the daemon copied.
read_by_kernels() {
    take_status
    echo $(($(od -An -t u8 -N 8 "$dir/sim/crossed0" | tr -d ' ') - $(gpu bytes_in)))
}

has_worked() {
    has_ended one || [ "$(wc -l < "$dir/one.out")" -ge "$1" ]
}

# is_still: while one works for 0.6 s, next to nothing is.
is_still() {
    still_before=$(read_by_kernels)
    within "$patience" has_worked $(($(wc -l < "$dir/one.out") + 3)) || fail "one does not work"
    [ $(($(read_by_kernels) - still_before)) -lt $((4 * mib)) ]
}

# begin: two programs whose 32 MiB that they touch fit into 80; so of the 64 that each does not at least 16 lie on the host.
begin() {
    start_default --gpu-budget 80M --pinned 512M --log-level debug
    for begun in one two; do pool $begun; done
    for begun in one two; do
        within "$patience" has_on_host $begun 16 || fail "what $begun does not touch does not go to the host: $(app_of "$(pid_of $begun)")"
    done
    within "$patience" is_still || fail "programs read memory on the host that they do not touch"
}

is_unchecked() {
    is_up && grep -q "\"unchecked\":[[:space:]]*\"$1" "$dir/status.json"
}

# came_back: how often memory was brought back
came_back() {
    grep -c 'memory on the host is used' "$dir/daemon.out"
}

is_checked() {
    is_unchecked '"'
}

# Others use the link: all comes back, which does not help, and then windows alone decide.
begin
is_checked || fail "status says that nothing is checked: $(grep unchecked "$dir/status.json")"
echo '12000000 0' > "$dir/sim/link0"
within "$patience" is_unchecked 'others use the link' || fail "status does not say so: $(grep unchecked "$dir/status.json")"
for other in one two; do
    within "$patience" has_on_host $other 16 || fail "what $other does not touch does not go back to the host"
done
rm -f "$dir/sim/link0"

# That is over, and another process has the GPU open, as a desktop always has. At least 8 of the 64 MiB that are read now lie on the host. They are found.
within "$patience" is_checked || fail "status still says that nothing is checked: $(grep unchecked "$dir/status.json")"
for other in one two; do
    within "$patience" has_on_host $other 16 || fail "what $other does not touch is not on the host any more"
done
within "$patience" is_still || fail "programs read memory on the host that they do not touch"
native stranger linked --bytes 8M --until "$dir/enough"
before=$(came_back)
from=$(date +%s%N)
ask one 'follow 64M' followed=
within "$patience" is_still || fail "what is read on the host is not found"
say "found after $((($(date +%s%N) - from) / 1000000)) ms, in $(($(came_back) - before)) steps"
[ "$(came_back)" -gt "$before" ] || fail "nothing came back, and yet nothing is read"
touch "$dir/enough"
expect_pass stranger
finish one two
stop_daemon

# Nobody counts: right, slow, and said.
export SIMCUDA_NO_COUNTERS=1
begin
unset SIMCUDA_NO_COUNTERS
is_unchecked 'NVML does not count' || fail "status does not say so: $(grep unchecked "$dir/status.json")"
grep -q 'what crosses its link tells nothing' "$dir/daemon.out" || fail "the log does not say so"
ask one 'follow 64M' followed=
is_still && fail "nothing is read on the host, so this shows nothing"
[ "$(came_back)" = 0 ] || fail "memory came back, and nobody can know why"
finish one two
stop_daemon
