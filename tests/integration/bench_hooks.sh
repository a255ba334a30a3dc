#!/bin/sh
# The hooks that bench/overhead switches off and on in a process: while they are off a call goes past the closed gate,
# while they are on it waits there, whoever had looked up its address before; and natively there is nothing to switch.
# A process that took the library out is a native one.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
[ "${GM_LINKED:-}" != 1 ] || skip "the shim is not preloaded here"
[ "$(uname -m)" = x86_64 ] || skip "hooks are switched on x86-64 alone"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

cat > "$dir/program.py" << 'END'
import ctypes, sys, threading
sys.path.insert(0, sys.argv[1])
import hooks

if sys.argv[2] == "out":
    assert hooks.take_out() > 100
driver = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_uint64()
context = ctypes.c_void_p()
for result in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
               driver.cuCtxSetCurrent(context),
               driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(8 << 20))):
    assert result == 0, result
fill = driver.cuMemsetD8Async # looked up once, as programs do
fill.argtypes = ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p
assert fill(pointer, 1, 1 << 20, None) == 0

def call(done):
    assert driver.cuCtxSetCurrent(context) == 0
    if fill(pointer, 2, 1 << 20, None) == 0:
        done.set()

found = hooks.Hooks()
done = None
print("hooked" if found else "native", flush=True)
for line in iter(sys.stdin.readline, ""):
    verb, *what = line.split()
    if verb == "switch":
        found.switch(int(what[0]))
        print("ok", flush=True)
    elif verb == "call": # a thread of its own may wait for ever
        done = threading.Event()
        threading.Thread(target=call, args=(done,), daemon=True).start()
    else:
        print("called" if done.wait(float(what[0])) else "waits", flush=True)
END
python() {
    mkfifo "$dir/$1.in"
    spawn "$1" env ${2:+"LD_PRELOAD=$2"} sh -c \
        "exec python3 -B '$dir/program.py' '$benches/python' ${3:-in} < '$dir/$1.in'"
}
# has_said NAME WORD...: these lines, and no more
has_said() {
    said_name=$1
    shift
    [ "$(tr '\n' ' ' < "$dir/$said_name.out")" = "$* " ]
}
expect() {
    within "$patience" has_said "$@" || fail "$1 said $(tr '\n' ' ' < "$dir/$1.out"), expected: $*"
}

start_mlfq
python hooked "$shim"
exec 3> "$dir/hooked.in"
expect hooked hooked
printf 'call\nlook %s\n' "$patience" >&3
expect hooked hooked called
"$ctl" pause "$(pid_of hooked)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state hooked paused || fail "it is not paused: $(app_of "$(pid_of hooked)")"
printf 'switch 1\ncall\nlook %s\n' "$patience" >&3
expect hooked hooked called ok called
printf 'switch 2\ncall\nlook %s\n' "$patience" >&3
expect hooked hooked called ok called ok called
printf 'switch 0\ncall\nlook 1\n' >&3
expect hooked hooked called ok called ok called ok waits
"$ctl" resume "$(pid_of hooked)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
echo "look $patience" >&3
expect hooked hooked called ok called ok called ok waits called
exec 3>&-
await hooked
[ "$code" = 0 ] || fail "it ended with $code"

python native ""
exec 4> "$dir/native.in"
printf 'switch 1\ncall\nlook %s\nswitch 0\n' "$patience" >&4
expect native native ok called ok
exec 4>&-
await native
[ "$code" = 0 ] || fail "native ended with $code"

python out "$shim" out
exec 5> "$dir/out.in"
printf 'call\nlook %s\n' "$patience" >&5
expect out hooked called
is_up || fail "the daemon does not answer"
[ -z "$(app_of "$(pid_of out)")" ] || fail "the library was taken out, and yet there is an app: $(app_of "$(pid_of out)")"
exec 5>&-
await out
[ "$code" = 0 ] || fail "the one without the library ended with $code"
expect_empty
