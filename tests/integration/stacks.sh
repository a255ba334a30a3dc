#!/bin/sh
# Threads with small stacks: a hooked call takes at most 4 KiB more than the driver's own, with and without a daemon and
# while others have their turns, the first call and log lines among them; and a stack of 24 KiB holds them all.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "sanitizers take stack of their own"
program=$BUILD/tests/programs/gm_stacks
export LD_BIND_NOW=1 # to find a function takes stack, too, at its first call
spawn native "$program" 64 2
await native
[ "$code" = 0 ] || fail "without gpumux: $line"

# compare NAME: what it took, call by call.
compare() {
    await "$1"
    [ "$code" = 0 ] || fail "$1: $line"
    awk 'NR == FNR { native[$1] = $2; next } $2 > native[$1] + 4096 { print $1 ": " $2 ", the driver " native[$1]; n++ }
        $2 > native[$1] + most { most = $2 - native[$1]; call = $1 }
        END { print FNR " calls, at most " most " bytes more: " call; exit n > 0 }' "$dir/native.out" "$dir/$1.out" \
        > "$dir/compared.out" || fail "$1: calls take too much stack"
    say "$1: $(cat "$dir/compared.out")"
}

try() {
    for size in 64 24; do
        spawn "$1-$size" env LD_PRELOAD="$shim" GPUMUX_LOG="$dir/$1.log" "$program" "$size" 2
    done
    compare "$1-64"
    await "$1-24"
    [ "$code" = 0 ] || fail "$1, 24 KiB: $line"
}

try alone
start_daemon
try shared
app other linked --bytes 128M --allocs 3 --until "$dir/enough"
await_ready other
try turns
touch "$dir/enough"
expect_pass other
expect_empty
stop_daemon
