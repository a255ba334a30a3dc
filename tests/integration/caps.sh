#!/bin/sh
# A cap on a program that runs brings it below within seconds, and its results stay right; without the cap all of it comes
# back. Caps that cannot be are refused with one line. The environment and rules say caps, too; by another system's
# variable the program sees the cap as all there is.
. "$(dirname "$0")/lib.sh"
need_size

# is_at NAME LEAST MOST: it has so many MiB of the GPU.
is_at() {
    is_up || return 1
    at=$(app_number "$(pid_of "$1")" device_bytes)
    [ "${at:-0}" -ge $(($2 << 20)) ] && [ "${at:-0}" -le $(($3 << 20)) ]
}

# expect_refused TEXT SETTING...: the setting is refused with one line that says so.
expect_refused() {
    refused_text=$1
    shift
    "$ctl" set "$(pid_of big)" "$@" > "$dir/set" 2>&1 && fail "$* is not refused"
    grep -q -- "$refused_text" "$dir/set" || fail "$*: $(cat "$dir/set")"
    [ "$(wc -l < "$dir/set")" = 1 ] || fail "$*: not one line: $(cat "$dir/set")"
}

start_daemon --pinned 160M --rule 'command=gm_worker_proc* cap=30M'
app big linked --bytes 120M --allocs 6 --iterations 2 --seed 3 --until "$dir/enough"
await_ready big
within "$patience" is_at big 120 128 || fail "not all of it is on the GPU"

expect_refused 'cap: "0" is out of range: 2M or more, or none' cap=0
expect_refused 'cap: "much" is not a size' cap=much
expect_refused 'cap=200M is above the budget of 160 MiB' cap=200M
expect_refused 'cap=10M needs 11[0-2] MiB of pinned memory for what is above it, and there is room for 84 MiB: raise --pinned' cap=10M

"$ctl" set "$(pid_of big)" cap=60M > "$dir/set" || fail "the cap is refused"
within 5 is_at big 30 60 || fail "it is above its cap: $(app_number "$(pid_of big)" device_bytes)"
[ "$(app_number "$(pid_of big)" on_host_bytes)" -ge $((60 << 20)) ] || fail "the rest is not on the host"
app_has "$(pid_of big)" "\"cap_bytes\":$((60 << 20))" || fail "the status does not say its cap"
"$ctl" status | tr -s '\n ' ' ' | grep -q 'cap 60 MiB' || fail "mux-ctl status does not say its cap"
"$ctl" set "$(pid_of big)" cap=none > "$dir/set" || fail "the cap cannot be taken away"
within "$patience" is_at big 120 128 || fail "it does not come back to the GPU"
touch "$dir/enough"
expect_pass big

# expect_capped NAME CAP TOTAL [WAY]: it is told so much in all, and runs below its cap.
expect_capped() {
    rm -f "$dir/enough"
    app "$1-info" "${4:-linked}" --mode info --bytes 2M --allocs 1
    await "$1-info"
    grep -q "^total=$(($3 << 20)) device_total=$(($3 << 20)) " "$dir/$1-info.out" ||
        fail "$1 is not told $3 MiB: $(head -n 1 "$dir/$1-info.out")"
    app "$1" "${4:-linked}" --bytes 48M --allocs 6 --iterations 2 --seed 4 --until "$dir/enough"
    await_ready "$1"
    is_at "$1" 0 "$2" || fail "$1 is above its cap: $at"
    touch "$dir/enough"
    expect_pass "$1"
}
GPUMUX_CAP=20M expect_capped said 20 160
expect_capped ruled 30 160 proc
CUDA_DEVICE_MEMORY_LIMIT=64m expect_capped foreign 64 64
CUDA_DEVICE_MEMORY_LIMIT_0=64m CUDA_DEVICE_MEMORY_LIMIT=100m app more linked --bytes 70M --allocs 1 --iterations 1
await more
[ "$code" = 3 ] || fail "more than the other system's limit is not refused: $line"
grep -q 'by its environment it may have 64 MiB, and it has .*: raise CUDA_DEVICE_MEMORY_LIMIT' "$dir/daemon.out" ||
    fail "the log does not say whose limit it is"
GPUMUX_CAP=lots app odd linked --bytes 4M --allocs 1 --iterations 1
expect_pass odd
grep -q 'is no size of 2M or more: going on without it' "$dir/daemon.out" || fail "a wrong word is not told"
expect_empty
stop_daemon

# What all programs of a user may have together. Of the GPU: the rest of who comes later is on the host. Of what may have
# to be pinned: more is refused.
start_daemon --pinned 320M --rule "user=$(id -u) user-gpu=100M user-pinned=150M"
rm -f "$dir/enough"
for each in first second; do
    app "$each" linked --bytes 72M --allocs 6 --iterations 2 --seed 5 --until "$dir/enough"
    await_ready "$each"
done
take_status
first=$(app_number "$(pid_of first)" device_bytes) second=$(app_number "$(pid_of second)" device_bytes)
[ $((first + second)) -le $((100 << 20)) ] || fail "together they have $first and $second of the GPU"
[ "$first" -ge $((72 << 20)) ] || fail "who came first has $first of the GPU"
app third linked --bytes 12M --allocs 1 --iterations 1
await third
[ "$code" = 3 ] || fail "more than the user may have is not refused: $line"
grep -q 'the programs of its user may have 150 MiB of memory that can be moved out, .*: raise user-pinned=' \
    "$dir/daemon.out" || fail "the log does not say whose total it is"
touch "$dir/enough"
expect_pass first second
expect_empty
stop_daemon
