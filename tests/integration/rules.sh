#!/bin/sh
# Rules of the configuration: the first that matches a program counts, as a whole. An invalid one stops the
# start, with the file and the line.
. "$(dirname "$0")/lib.sh"
conf=$dir/gpumux.conf
unset GPUMUX_CLASS

# refuses TEXT RULE...: with these lines of configuration the daemon does not start, and says why in one line.
refuses() {
    refuses_text=$1
    shift
    printf '%s\n' "$@" > "$conf"
    timeout 300 "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --config "$conf" > "$dir/said" 2>&1
    code=$?
    [ "$code" = 1 ] || fail "$*: the daemon ended with $code"
    [ "$(wc -l < "$dir/said")" = 1 ] && grep -qF -- "$refuses_text" "$dir/said" ||
        fail "$*: expected \"$refuses_text\", got $(cat "$dir/said")"
    [ ! -e "$GPUMUX_SOCKET" ] || fail "$*: a socket is left"
    say "$(cat "$dir/said")"
}

refuses "$conf:1: rule: class: \"fast\" is not auto, latency, interactive or batch" 'rule = user=0 class=fast'
refuses "$conf:2: rule: weight: \"0\" is out of range" '# mine' 'rule = user=0 weight=0'
refuses "$conf:1: rule: weight: \"-3\" is out of range" 'rule = user=0 weight=-3'
refuses "$conf:1: rule: share: \"0%\" is out of range" 'rule = user=0 share=0%'
refuses "$conf:1: rule: share: \"250%\" is out of range" 'rule = user=0 share=250%'
refuses "$conf:1: rule: user: there is no user \"-1\"" 'rule = user=-1 paused'
refuses "$conf:1: rule: for which programs?" 'rule = class=batch'
refuses "$conf:1: rule: sets nothing" 'rule = command=python3'
refuses "$conf:1: rule: \"colour=red\" is neither a condition" 'rule = command=python3 colour=red'
refuses "$conf:1: rule: command: a program's name has at most 63 bytes" "rule = command=$(printf '%064d' 0) paused"
refuses "$conf:3: rule: can match nothing: the rule on line 1 matches all of these programs" 'rule = command=py* class=batch' '' \
    'rule = command=python3 weight=2'

cat > "$conf" << END_OF_CONF
slice = 100ms
rule = command=gm_worker_proc* class=batch weight=0.5 share=40%   # the first counts
rule = user=$(id -u) command=gm_worker_dlsym* paused
rule = user=$(id -u) class=interactive
END_OF_CONF
start_default --config "$conf"
app one proc --bytes 40M --iterations 2 --seed 1 --go "$dir/go"
app two linked --bytes 40M --iterations 2 --seed 2 --go "$dir/go"
app paused dlsym --bytes 40M --iterations 2 --seed 3 --go "$dir/go"
# GPUMUX_CLASS and mux-ctl set are closer to the program than a rule.
export GPUMUX_CLASS=latency
app wish proc --bytes 20M --iterations 2 --seed 4 --go "$dir/go"
unset GPUMUX_CLASS
await_ready one
await_ready two
await_ready wish
take_status
app_has "$(pid_of one)" '"class":"batch","weight":0.5,"share_percent":40,"paused":false' || fail "one: $(app_of "$(pid_of one)")"
app_has "$(pid_of two)" '"class":"interactive","weight":1,"share_percent":100,"paused":false' || fail "two: $(app_of "$(pid_of two)")"
app_has "$(pid_of wish)" '"class":"latency","weight":0.5,"share_percent":40' || fail "wish: $(app_of "$(pid_of wish)")"
grep -q '"rules":\["command=gm_worker_proc\* class=batch weight=0.5 share=40%",' "$dir/status.json" || fail "the status tells no rules"
grep -q "(pid $(pid_of one), .*): by the rule command=gm_worker_proc\*" "$dir/daemon.out" || fail "the log tells no rule"

is_held() {
    is_up && app_has "$(pid_of paused)" '"state":"paused".*"paused":true'
}
within "$patience" is_held || fail "paused by a rule, and yet: $(app_of "$(pid_of paused)")"
[ ! -f "$dir/paused.ready" ] || fail "what a rule pauses had the GPU"
"$ctl" resume "$(pid_of paused)" > /dev/null || fail "resume failed"
await_ready paused
"$ctl" set "$(pid_of one)" class=auto weight=1 > /dev/null || fail "set failed"
take_status
app_has "$(pid_of one)" '"class":"auto","weight":1,"share_percent":40' || fail "one: $(app_of "$(pid_of one)")"
touch "$dir/go"
expect_pass one two paused wish
expect_empty
stop_daemon
