#!/bin/sh
# A program sees the budget as its device, and its own use taken from it.
. "$(dirname "$0")/lib.sh"
start_daemon
app info linked --mode info --bytes 96M --allocs 3
await info
[ "$code" = 0 ] || fail "info: $line"
told=$(head -n 1 "$dir/info.out")
say "$told"
number() {
    echo "$told" | tr ' ' '\n' | sed -n "s/^$1=//p"
}
budget=$((160 * 1024 / shrink * 1024))
need=$((96 * 1024 / shrink * 1024))
[ "$(number total)" = $budget ] || fail "total is $(number total), the budget is $budget"
[ "$(number device_total)" = $budget ] || fail "the device's total is $(number device_total)"
[ "$(number free_before)" -le $budget ] || fail "more is free than there is"
used=$(($(number free_before) - $(number free_during)))
# whole chunks: up to 2 MiB more an allocation
[ $used -ge $need ] && [ $used -le $((need + (6 << 20))) ] || fail "$need bytes were taken, $used are counted"
[ "$(number free_after)" = "$(number free_before)" ] || fail "not all came back"
expect_empty
stop_daemon
