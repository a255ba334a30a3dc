#!/bin/sh
# What an interpreter runs is called like its script or module, in status, in the log and for rules and mux-ctl set.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"
command -v python3 > /dev/null || skip "no python3"
unset GPUMUX_CLASS

# Opens the driver and then waits for its end.
cat > "$dir/train_model.py" << END_OF_SCRIPT
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
while not os.path.exists("$dir/go"):
    time.sleep(0.05)
END_OF_SCRIPT
mkdir "$dir/package"
cp "$dir/train_model.py" "$dir/package/evaluate.py"
printf '%s\n' 'rule = command=train* class=batch weight=0.5' > "$dir/gpumux.conf"
start_default --config "$dir/gpumux.conf"

run() {
    run_name=$1
    shift
    spawn "$run_name" env LD_PRELOAD="$shim" PYTHONPATH="$dir" PYTHONDONTWRITEBYTECODE=1 "$@"
}

is_called() {
    ! has_ended "$1" && is_up && app_has "$(pid_of "$1")" "\"name\":\"$2\""
}

run script python3 -u -W ignore "$dir/train_model.py" --lr 0.1
run module python3 -m package.evaluate
run code python3 -c "exec(open('$dir/train_model.py').read())" train_model.py
within "$patience" is_called script train_model.py || fail "the script is not train_model.py: $(app_of "$(pid_of script)")"
within "$patience" is_called module package.evaluate || fail "the module is not package.evaluate: $(app_of "$(pid_of module)")"
within "$patience" is_called code python3 || fail "python3 -c is not python3: $(app_of "$(pid_of code)")"
app_has "$(pid_of script)" '"class":"batch","weight":0.5' || fail "the rule does not hold for train_model.py"
app_has "$(pid_of module)" '"class":"auto","weight":1' || fail "the rule holds for the module"
grep -q "app [0-9]*: pid $(pid_of script), .*train_model.py" "$dir/daemon.out" || fail "the log calls it something else"
"$ctl" set --command='package.*' weight=2 > "$dir/set.out" || fail "mux-ctl set finds no package.*"
take_status
app_has "$(pid_of module)" '"weight":2' || fail "mux-ctl set --command changed nothing"
"$ctl" status > "$dir/table.out" || fail "status failed"
grep -q ' train_model.py ' "$dir/table.out" && grep -q ' package.evaluate ' "$dir/table.out" ||
    fail "the table shows other names: $(cat "$dir/table.out")"
# A name that changes how its line reads, and one that ends it, show as what they are in every view.
odd="$dir/$(printf 'tra\342\200\256gnp\342\200\250x.py')"
cp "$dir/train_model.py" "$odd"
run odd python3 "$odd"
"$ctl" trace record --seconds=1 "$dir/odd.trace" > /dev/null || fail "trace record failed"
within "$patience" is_called odd 'tra???gnp???x.py' || fail "the odd name shows as $(app_of "$(pid_of odd)")"
for view in status 'status --json' ps log metrics; do "$ctl" $view > "$dir/view" 2>&1 && cat "$dir/view"; done > "$dir/views"
"$ctl" trace export -o "$dir/odd.json" "$dir/odd.trace" > /dev/null || fail "the trace cannot be read"
cat "$dir/odd.trace" "$dir/odd.json" "$dir/daemon.out" >> "$dir/views"
[ "$(grep -c 'tra???gnp???x.py' "$dir/views")" -ge 4 ] || fail "too few views show it"
LC_ALL=C grep -q "$(printf '\342\200[\250\256]')" "$dir/views" && fail "a view has the name as it was"
# What multiprocessing starts is called like the script that did, in each of its ways, and at any depth.
cat > "$dir/spawner.py" << END_OF_SCRIPT
import multiprocessing, os, sys

def work(name, way, depth):
    if depth > 0:
        start(name, way, depth - 1)
        return
    with open("$dir/" + name + ".child.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("$dir/" + name + ".child.new", "$dir/" + name + ".child")
    exec(open("$dir/train_model.py").read())

def start(name, way, depth):
    child = multiprocessing.get_context(way).Process(target=work, args=(name, way, depth))
    child.start()
    child.join()
    assert child.exitcode == 0

if __name__ == "__main__":
    start(sys.argv[1], sys.argv[2], int(sys.argv[3]))
END_OF_SCRIPT
run spawned python3 "$dir/spawner.py" spawned spawn 0
run deeper python3 "$dir/spawner.py" deeper spawn 1
run served python3 "$dir/spawner.py" served forkserver 0
child_is_called() {
    has_ended "$1" && fail "$1 ended: $(cat "$dir/$1.out")"
    [ -f "$dir/$1.child" ] && is_up && app_has "$(cat "$dir/$1.child")" "\"name\":\"$2\""
}
for way in spawned deeper served; do
    within "$patience" child_is_called "$way" spawner.py || fail "$way is not spawner.py: $(app_of "$(cat "$dir/$way.child")")"
done
touch "$dir/go"
for name in script module code odd spawned deeper served; do
    await "$name"
    [ "$code" = 0 ] || fail "$name ended with $code: $line"
done
expect_empty
stop_daemon
