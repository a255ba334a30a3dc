#!/bin/sh
# What a program will need places it: as it says, as a rule says, and as earlier runs needed, which a file keeps.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"

# start NAME BYTES ARGUMENT...
start() {
    start_name=$1
    start_bytes=$2
    shift 2
    app "$start_name" "$@" --bytes "$start_bytes" --allocs 1 --iterations 4 --seed 1 --until "$dir/enough"
    await_ready "$start_name"
    take_status
}

# expect_on GPU NAME WHY: there, and status says so
expect_on() {
    [ "$(app_number "$(pid_of "$2")" gpu)" = "$1" ] &&
        app_has "$(pid_of "$2")" "\"placed\":\"[^\"]*$(echo "$3" | tr -d ' ')" ||
        fail "$2 is not on GPU $1 as \"$3\": $(app_of "$(pid_of "$2")")"
}

end() {
    touch "$dir/enough"
    expect_pass "$@"
    rm "$dir/enough"
    expect_empty
}

history="$dir/history"
(umask 077 && echo "gibberish" > "$history")
start_daemon --gpu all --history "$history" --rule 'command=gm_worker_proc* need=100M'
grep -q "line 1 of the history $history is damaged: renamed to $history.damaged" "$dir/daemon.out" ||
    fail "nothing is said of the damaged history"
[ "$(cat "$history.damaged")" = gibberish ] && [ ! -e "$history" ] || fail "the damaged history is not where it was put"

# The first says that it will need nearly all of GPU 0: the second, by a rule, has no room beside it. Nor has the third beside that.
export GPUMUX_NEED=$(shrunk 140M)
start said 24M linked
expect_on 0 said "as its environment says"
unset GPUMUX_NEED
start ruled 24M proc
expect_on 1 ruled "it needs 100 MiB, as a rule says"
export GPUMUX_NEED=lots
start third 48M dlsym
unset GPUMUX_NEED
expect_on 0 third "most multiprocessors left"
app_number "$(pid_of third)" expected_bytes | grep -qx 0 || fail "something is expected of an unknown program"
end said ruled third

# What they needed is remembered, also by the next daemon.
start again 24M dlsym
app_has "$(pid_of again)" 'asinearlierruns' || fail "the run of 48M is forgotten: $(app_of "$(pid_of again)")"
end again
stop_daemon
[ "$(grep -c '^uid=[0-9]* runs=[12] last=.* command=gm_worker' "$history")" = 3 ] || fail "the history: $(cat "$history")"
start_daemon --gpu all --history "$history"
start once 24M dlsym
app_has "$(pid_of once)" 'asinearlierruns' || fail "the next daemon does not know: $(app_of "$(pid_of once)")"
end once

"$ctl" forget --command='gm_worker_d*' > "$dir/said" && [ "$(cat "$dir/said")" = "1 command forgotten" ] || fail "$(cat "$dir/said")"
"$ctl" forget > "$dir/said" && [ "$(cat "$dir/said")" = "2 commands forgotten" ] || fail "$(cat "$dir/said")"
start fresh 24M dlsym
expect_on 0 fresh "multiprocessors left\""
end fresh

# mux-ctl run says it, too.
if [ "${GM_LINKED:-}" != 1 ]; then
    spawn run "$ctl" run --need="$(shrunk 64M)" -- "$(worker linked)" --ready "$dir/run.ready" --bytes 24M --allocs 1 \
        --iterations 2 --until "$dir/enough"
    await_ready run
    take_status
    app_has "$(pid_of run)" 'asitsenvironmentsays' || fail "--need is not heard"
    end run
fi
! "$ctl" run --need=-3 -- true 2> "$dir/said" && grep -q "is not a size" "$dir/said" || fail "--need=-3"
stop_daemon
