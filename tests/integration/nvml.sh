#!/bin/sh
# NVML and CUDA tell a program the same about memory, also how much of it the program has, from the moment that it initialized CUDA; a program that only
# reads NVML, one without gpumux, and one whose daemon is not there see the device as it is.
. "$(dirname "$0")/lib.sh"
mib=$((1024 * 1024))
real=$(((1024 + 16) * mib)) # the device, and what the simulated system keeps for itself

# told NAME WHEN KEY
told() {
    sed -n "s/^$2: \(.*\)/ \1/p" "$dir/$1.out" | grep -o " $3=[0-9]*" | cut -d= -f2
}

native plain linked --mode nvml --bytes 96M
expect_pass plain
for when in before initialized context allocated freed; do
    [ "$(told plain $when nvml_total)" = $real ] || fail "natively $when: $(cat "$dir/plain.out")"
done
[ "$(told plain allocated process)" -ge $((96 * 1024 / shrink * 1024)) ] || fail "natively: $(cat "$dir/plain.out")"
[ "$(told plain allocated nvml_free)" -lt "$(told plain context nvml_free)" ] || fail "natively nothing is taken"

app none linked --mode nvml --bytes 96M # no daemon
expect_pass none
[ "$(told none allocated nvml_total)" = $real ] || fail "without a daemon: $(cat "$dir/none.out")"

start_daemon
budget=$((160 * 1024 / shrink * 1024))
need=$((96 * 1024 / shrink * 1024))
for way in linked dlsym proc; do
    app "$way" "$way" --mode nvml --bytes 96M --allocs 3
    expect_pass "$way"
    [ "$(told "$way" before nvml_total)" = $real ] || fail "before CUDA it is not the device: $(cat "$dir/$way.out")"
    for when in initialized context allocated freed; do
        [ "$(told "$way" $when nvml_total)" = $budget ] &&
            [ "$(told "$way" $when device_total)" = $budget ] || fail "$when: $(cat "$dir/$way.out")"
    done
    for when in context allocated freed; do
        [ "$(told "$way" $when nvml_total)" = "$(told "$way" $when total)" ] &&
            [ "$(told "$way" $when nvml_free)" = "$(told "$way" $when free)" ] ||
            fail "$when NVML and CUDA differ: $(cat "$dir/$way.out")"
    done
    used=$(($(told "$way" context nvml_free) - $(told "$way" allocated nvml_free)))
    [ $used -ge $need ] && [ $used -le $((need + 6 * mib)) ] || fail "$need bytes were taken, $used are counted"
    used=$(($(told "$way" allocated process) - $(told "$way" context process)))
    [ $used -ge $need ] && [ $used -le $((need + 6 * mib)) ] ||
        fail "$need bytes were taken, NVML's list says $used: $(cat "$dir/$way.out")"
    [ "$(told "$way" freed nvml_free)" = "$(told "$way" context nvml_free)" ] || fail "not all came back"
done
app off linked --mode info --bytes 8M
expect_pass off
expect_empty

# a program of Python, where pynvml is installed
if [ "${GM_LINKED:-}" != 1 ] && python3 -c 'import pynvml' 2> /dev/null; then
    told=$(LD_PRELOAD="$shim:$BUILD/tests/simcuda/libcuda.so.1" python3 "$(dirname "$0")/../programs/nvml_look.py" 2>&1)
    [ "$told" = "process=$((48 * mib)) details=$((48 * mib)) same=1" ] || fail "pynvml says $told"
    say "pynvml: $told"
fi

# status lists what uses the GPU without gpumux, and nothing else; one word where nobody knows
app shared linked --bytes 24M --iterations 1 --until "$dir/enough"
native beside linked --bytes 48M --iterations 1 --until "$dir/enough"
await_ready shared
await_ready beside
take_status
beside=$(tr -d ' \n\t' < "$dir/status.json" | sed 's/.*"unshared":\[//; s/\].*//')
case $beside in
"{\"pid\":$(pid_of beside),\"user\":\"$(id -un)\",\"name\":\"gm_worker\",\"bytes\":"*"}") ;;
*) fail "beside gpumux: $beside" ;;
esac
case $beside in
*'},{'*) fail "more than one: $beside" ;;
esac
[ "${beside##*:}" != "0}" ] && [ "$(echo "${beside##*:}" | tr -d '}')" -ge $((48 * 1024 / shrink * 1024)) ] || fail "its bytes: $beside"
"$ctl" status > "$dir/said" || fail "status: $(cat "$dir/said")"
grep -q "^ *$(pid_of beside)    0  $(id -un) .*MiB  gm_worker\$" "$dir/said" || fail "the table: $(cat "$dir/said")"
env -u LD_LIBRARY_PATH "$ctl" status > "$dir/said" || fail "status: $(cat "$dir/said")"
if env -u LD_LIBRARY_PATH "$ctl" status --json | grep -q '"unshared":null'; then
    grep -q '^not shared: unknown (NVML does not say)$' "$dir/said" || fail "without NVML: $(cat "$dir/said")"
else
    say "there is an NVML of this machine: what is said without one is not tried"
fi
touch "$SIMCUDA_DIR/nvml-hangs"
begun=$(date +%s)
: > "$dir/watched"
timeout 60 "$ctl" status --watch=10ms > "$dir/watched" & watcher=$!
within "$patience" grep -q '^not shared: unknown (NVML does not answer)$' "$dir/watched" || fail "status of a driver that hangs: $(cat "$dir/watched")"
[ $(($(date +%s) - begun)) -ge 2 ] || fail "NVML has no time to answer"
kill "$watcher"
timeout 60 "$ctl" status --json > "$dir/said" || fail "status of a driver that hangs: $(cat "$dir/said")"
grep -q '"unshared":null,"unshared_why":"NVML does not answer"' "$dir/said" || fail "JSON: $(cat "$dir/said")"
rm "$SIMCUDA_DIR/nvml-hangs"
touch "$dir/enough"
expect_pass shared beside
stop_daemon
