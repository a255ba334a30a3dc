#!/bin/sh
# Ctrl-C in a Python program that waits for its turn: Python raises its exception only after the CUDA call has returned.
# So the signal brings an early, short turn, though the turn of the other program is never over, and that one goes on. A
# paused program waits as it was told, and its log says why it does not end.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "Python does not carry the shim inside"
command -v python3 > /dev/null || skip "no python3"

cat > "$dir/waits.py" << 'END'
import ctypes, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
cuda = ctypes.CDLL("libcuda.so.1")
def need(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code: sys.exit(f"{name}: error {code}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
need("cuInit", 0)
need("cuDeviceGet", ctypes.byref(device), 0)
need("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
need("cuCtxSetCurrent", context)
size = int(sys.argv[1])
need("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
try:
    while True:
        need("cuMemsetD32_v2", memory, 7, ctypes.c_size_t(size // 4))
except KeyboardInterrupt:
    print("interrupted")
END

# python NAME MIB: it works when $dir/NAME.go is there.
python() {
    spawn "$1" env LD_PRELOAD="$shim" GPUMUX_LOG="$dir/$1.log" GPUMUX_CLASS=batch python3 "$dir/waits.py" $(($2 << 20)) "$dir/$1.go"
}

waits_at_the_gate() {
    has_state "$1" waiting && [ "$(app_number "$(pid_of "$1")" waiting_threads)" = 1 ]
}

has_memory() {
    is_up && has=$(app_number "$(pid_of "$1")" total_bytes) && [ "${has:-0}" -gt 0 ]
}

waits_paused() {
    has_state second paused && [ "$(app_number "$(pid_of second)" waiting_threads)" = 1 ]
}

expect_interrupted() {
    await "$1"
    [ "$code,$line" = "0,interrupted" ] || fail "$1: code $code: $line"
}

start_daemon --slice 1000s
app works linked --bytes 96M --iterations 3 --until "$dir/enough"
await_ready works
touch "$dir/first.go"
python first 96
within "$patience" waits_at_the_gate first || fail "it does not wait for its turn"
began=$(date +%s%N)
kill -INT "$(pid_of first)"
expect_interrupted first
say "it ended after $((($(date +%s%N) - began) / 1000000)) ms"

python second 32 # there is room for both
within "$patience" has_memory second || fail "it does not run"
"$ctl" pause "$(pid_of second)" > /dev/null || fail "pause failed"
within "$patience" has_state second paused || fail "it is not paused"
touch "$dir/second.go"
within "$patience" waits_paused || fail "it does not wait at the gate"
kill -INT "$(pid_of second)"
says_why() {
    grep -q "a signal came while this program is paused.*mux-ctl resume $(pid_of second)" "$dir/second.log"
}
within "$patience" says_why || fail "its log does not say why it does not end: $(cat "$dir/second.log")"
! has_ended second || fail "it did not wait"
"$ctl" resume "$(pid_of second)" > /dev/null || fail "resume failed"
expect_interrupted second
[ "$(grep -c 'a signal came' "$dir/second.log")" = 1 ] || fail "its log says so again and again"
touch "$dir/enough"
expect_pass works
expect_empty
stop_daemon
