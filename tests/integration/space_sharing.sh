#!/bin/sh
# Space sharing: programs that a rule names join an MPS of their user (simcuda has a fake one), and what that costs them is said.
# One that fails, hangs or is missing costs a line, and the programs run without it.
. "$(dirname "$0")/lib.sh"
without_keeper

PATH=$BUILD/tests/simcuda:$PATH
export PATH CUDA_VISIBLE_DEVICES=0 # which the control daemon must not have: the fake one ends if it does

[ "$(id -u)" = 0 ] && need_stranger # before the simulated GPU is root's

# of_mps KEY: a word of the first user's entry
of_mps() {
    tr -d '\n\t' < "$dir/status.json" | sed 's/.*"space_sharing":\[//; s/\],"gpus".*//' | grep -o "\"$1\":\"[^\"]*" | head -n 1 | cut -d'"' -f4
}

# sharing N: so many programs share now
sharing() {
    is_up || return 1
    sharing_now=$(tr -d ' \n\t' < "$dir/status.json" | grep -o '"pids":\[[^]]*' | tr -d -c '0-9,\n[' | sed 's/.*\[//' | tr ',' '\n' | grep -c .)
    [ "$sharing_now" = "$1" ]
}

mps_is() {
    is_up && [ "$(of_mps state)" = "$1" ]
}

mps_is_gone() {
    is_up && [ -z "$(of_mps state)" ]
}

start() {
    start_name=$1
    shift
    app "$start_name" "$@" --bytes 24M --allocs 1 --iterations 4 --seed 1 --until "$dir/enough-$start_name"
    await_ready "$start_name"
}

end() {
    for end_name; do touch "$dir/enough-$end_name"; done
    expect_pass "$@"
    for end_name; do rm "$dir/enough-$end_name"; done
}

# Two that share, and one that a rule keeps out. Kernels of the two are not stopped in the middle, nor get timeslices.
# A rule gives one a part of the multiprocessors, and so no limit in time.
mkdir -m 711 "$dir/cache"
export CACHE_DIRECTORY="$dir/cache" # as from the service manager
start_daemon --space-sharing mps --rule 'command=gm_worker mps=off' --rule 'command=gm_worker_linked mps=off' \
    --rule 'command=gm_worker_proc share=25%'
unset CACHE_DIRECTORY
start one proc
start two dlsym
start apart linked
take_status
sharing 2 || fail "not two programs share"
app_has "$(pid_of one)" '"features_off":\["park","timeslices","isolation"\]' || fail "one has parking or its own fate: $(app_of "$(pid_of one)")"
app_has "$(pid_of apart)" '"features_off":\[\]' || fail "who does not share lacks something: $(app_of "$(pid_of apart)")"
"$ctl" status > "$dir/table"
grep -q "MPS of $(id -un) is ready: 2 programs" "$dir/table" && grep -q "a fatal fault of one of them ends the work of all" "$dir/table" ||
    fail "the table does not say who shares and what that costs: $(cat "$dir/table")"

[ "$(grep -c "without isolation: it shares" "$dir/table")" = 2 ] && ! grep -q "without park" "$dir/table" ||
    fail "the table says more or less than that: $(cat "$dir/table")"
! grep -q "as others will here" "$dir/daemon.out" || fail "the log takes what MPS costs for what the driver lacks"

[ "$(of_mps pipe)" = "$dir/cache/mps/$(id -u)/pipe" ] || fail "the folder is $(of_mps pipe)"
pid=$(pid_of one)
[ "$(cat "$(of_mps pipe)/parts")" = "$pid 25" ] || fail "the driver did not hear what one may have: $(cat "$(of_mps pipe)/parts")"
grep -q "pid .*$pid (25%)" "$dir/table" || fail "the table does not say what one may have: $(cat "$dir/table")"

# A fault of one: who starts then runs without, until the server takes programs again.
pipe=$(of_mps pipe)
[ "$(stat -c %a:%u "$pipe")" = "700:$(id -u)" ] || fail "the folder is $(stat -c %a:%u "$pipe")"
touch "$pipe/fault"
end two
within 30 mps_is fault || fail "a fault is not seen: MPS is $(of_mps state)"
is_up && of_mps why | grep -q "one program had a fatal fault" || fail "status does not say so: $(of_mps why)"
end one apart
rm "$pipe/fault"
within 60 mps_is_gone || fail "MPS does not end after its programs: $(of_mps state)"
expect_empty

stop_daemon

# Another user has another one.
start_daemon --space-sharing mps
if [ -n "${stranger:-}" ]; then
    stranger_app stranger --bytes 24M --allocs 1 --iterations 4 --until "$dir/enough-stranger"
    start one proc
    await_ready stranger
    sharing 2 || fail "not both share"
    [ "$(stat -c %a:%u "$dir/gpumux.sock.mps/65534/pipe")" = 700:65534 ] || fail "the other user's folder is not the other user's"
    owner=$(stat -c %u "/proc/$(cat "$dir/gpumux.sock.mps/65534/pipe/nvidia-cuda-mps-control.pid")")
    [ "$owner" = 65534 ] || fail "the other user's control daemon is of user $owner"
    end stranger one
fi

# A daemon that ends leaves MPS to its programs; the next one ends what is left, and starts another.
start one proc
pipe=$dir/gpumux.sock.mps/$(id -u)/pipe
control=$(cat "$pipe/nvidia-cuda-mps-control.pid")
stop_daemon
kill -0 "$control" || fail "MPS ended with the daemon, and a program of it is there"
end one
within 10 eval "! kill -0 $control 2> /dev/null" || fail "MPS stays when nobody uses it"

# One that ends as it starts, and one that is missing: a line, and programs that work.
mkdir "$dir/bin"
printf '#!/bin/sh\nexit 5\n' > "$dir/bin/nvidia-cuda-mps-control"
chmod 755 "$dir/bin/nvidia-cuda-mps-control"
PATH=$dir/bin:$PATH start_daemon --space-sharing mps
start one linked
mps_is unusable || fail "MPS is $(of_mps state) and cannot start"
of_mps why | grep -q "ended as it started (code 5" || fail "why is \"$(of_mps why)\""
[ "$(grep -c "MPS of .* cannot be used" "$dir/daemon.out")" = 1 ] || fail "not one line says that MPS cannot be used"
start two linked
sharing 0 || fail "a program shares and MPS cannot start"
end one two
expect_empty
stop_daemon
