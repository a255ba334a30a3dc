#!/bin/sh
# Without a daemon the program runs as without the shim: same output, same exit code, nothing said. The same with a
# socket nobody listens at, and with a socket folder that is not there.
. "$(dirname "$0")/lib.sh"
without_keeper
# what depends on time alone is cut
plain() {
    sed 's/seconds=[0-9.]*//' "$dir/$1.out"
}
# same WHAT WAY ARGUMENT...: one after the other, so that neither sees the other's memory.
same() {
    what=$1
    shift
    native bare "$@"
    await bare
    bare_code=$code
    app shimmed "$@"
    await shimmed
    [ "$code" = "$bare_code" ] || fail "exit code $code, $bare_code without the shim"
    [ "$(plain bare)" = "$(plain shimmed)" ] || fail "$what: output differs"
    say "$what: $line"
}
for mode in verify info copies churn; do
    same "no socket, $mode" linked --mode $mode --bytes 48M --iterations 2
done
# a stale socket: a daemon was killed and left it
start_daemon
kill -KILL "$(pid_of daemon)"
await daemon
[ -S "$GPUMUX_SOCKET" ] || fail "no stale socket to test with"
for way in linked dlsym proc; do
    same "stale socket, $way" $way --bytes 48M --iterations 2
done
# out of memory and a usage error come through unchanged
same "out of memory" linked --mode oom --bytes 640M --allocs 10
same "usage" linked --mode none-such
# a new daemon takes the stale socket over
start_daemon
app later linked --bytes 48M --iterations 2
expect_pass later
expect_empty
stop_daemon
[ ! -e "$GPUMUX_SOCKET" ] || fail "the daemon left its socket behind"
