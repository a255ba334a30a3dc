#!/bin/sh
# cuMemGetInfo and the daemon count a handle once, however often it is mapped, as long as it or a mapping of it lives;
# the daemon counts what was exported as memory that cannot be swapped.
. "$(dirname "$0")/lib.sh"
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

start_daemon
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
stop_daemon
