#!/bin/sh
# mux-ctl set, and GPUMUX_CLASS: what is said of programs holds, is shown, and is refused with one line where it
# cannot be, or may not.
. "$(dirname "$0")/lib.sh"

# expect CODE TEXT WORD...: mux-ctl WORD... ends with CODE and one line, on standard error unless CODE is 0.
expect() {
    expect_code=$1 expect_text=$2
    shift 2
    "$ctl" "$@" > "$dir/stdout" 2> "$dir/stderr"
    code=$?
    [ "$code" = "$expect_code" ] || fail "mux-ctl $*: ended with $code: $(cat "$dir/stderr")"
    [ "$(cat "$dir/stdout" "$dir/stderr" | wc -l)" = 1 ] || fail "mux-ctl $*: not one line"
    if [ "$code" = 0 ]; then
        grep -qF -- "$expect_text" "$dir/stdout" || fail "mux-ctl $*: says $(cat "$dir/stdout")"
    else
        grep -qF -- "$expect_text" "$dir/stderr" || fail "mux-ctl $*: says $(cat "$dir/stderr")"
    fi
    say "mux-ctl $*: $(cat "$dir/stdout" "$dir/stderr")"
}

start_default --best-class interactive
me=$(id -un 2> /dev/null) || me=$(id -u)
app one linked --bytes 40M --iterations 2 --seed 1 --go "$dir/go"
await_ready one
export GPUMUX_CLASS=batch
app two dlsym --bytes 40M --iterations 2 --seed 2 --go "$dir/go"
await_ready two
export GPUMUX_CLASS=fast
app three proc --bytes 40M --iterations 2 --seed 3 --go "$dir/go"
await_ready three
unset GPUMUX_CLASS
one=$(pid_of one) two=$(pid_of two) three=$(pid_of three)

take_status
app_has "$one" '"class":"auto","weight":1,"share_percent":100,"paused":false,"level":1,' || fail "one: $(app_of "$one")"
app_has "$two" '"class":"batch".*"level":3,' || fail "two: $(app_of "$two")"
app_has "$three" '"class":"auto"' || fail "three: $(app_of "$three")"
[ "$(grep -c "(pid $three, .*GPUMUX_CLASS is not auto, latency, interactive or batch" "$dir/daemon.out")" = 1 ] ||
    fail "the log does not tell of an unknown class, once"
app_has "$three" '"ignored":"GPUMUX_CLASSisnotauto,latency,interactiveorbatch"' || fail "status: $(app_of "$three")"
app_has "$two" '"ignored":""' || fail "status: $(app_of "$two")"
"$ctl" status > "$dir/table.out" || fail "status failed"
tr -s '\n ' ' ' < "$dir/table.out" | grep -q 'ignored: GPUMUX_CLASS is not auto, latency, interactive or batch' ||
    fail "the table does not tell of an unknown class: $(cat "$dir/table.out")"

expect 0 "1 program changed" set "$one" class=interactive weight=2.5 share=12.5%
take_status
app_has "$one" '"class":"interactive","weight":2.5,"share_percent":12.5,' || fail "one: $(app_of "$one")"
app_has "$one" '"level":1,.*"allotment_s":null' || fail "one: $(app_of "$one")"
expect 0 "3 programs changed" set --user "$me" class=batch
expect 0 "1 program changed" set --command '*_proc*' --user "$me" class=latency
take_status
app_has "$one" '"class":"batch","weight":2.5' || fail "what was not said is lost: $(app_of "$one")"
app_has "$three" '"class":"latency".*"level":0,' || fail "three: $(app_of "$three")"
"$ctl" status > "$dir/table.out" || fail "status failed"
grep -q 'weight 2.5; share 12.5%' "$dir/table.out" || fail "the table tells no weight and share"
grep -q ' latency ' "$dir/table.out" || fail "the table tells no class"

# --- nothing changes ---

take_status
tr '{' '\n' < "$dir/status.json" | grep -o '"pid":.*"paused":[a-z]*' | sed 's/"state".*"class"/"class"/' > "$dir/before"
expect 1 'class: "fast" is not auto, latency, interactive or batch' set "$one" class=fast
expect 1 'weight: "0" is out of range' set "$one" weight=0
expect 1 'weight: "-1" is out of range' set "$one" class=auto weight=-1
expect 1 'share: "0%" is out of range' set "$one" share=0%
expect 1 'share: "101%" is out of range' set "$one" share=101%
expect 1 'share: "50" is not a percentage' set "$one" share=50
expect 1 'paused: "2" is not no, yes, evicted or idle' set "$one" paused=2
expect 1 'weight is said twice' set "$one" weight=2 weight=3
expect 1 "set: pid $$ is no program that shares the GPU" set $$ class=auto
expect 1 'set: no program that shares the GPU has the name "python9"' set --command python9 class=auto
expect 1 'there is no user "gm-nobody-has-this-name"' set --user gm-nobody-has-this-name class=auto
expect 1 'no such program shares the GPU now' set --user 4000123 class=auto
expect 1 'no such program shares the GPU now' set "$one" --user 4000123 class=auto
expect 1 'which program?' set class=auto
expect 1 'what? say class=' set "$one"
expect 1 '"nice=3" is neither a pid nor a setting' set "$one" nice=3
expect 1 '"0" is neither a pid nor a setting' set 0 class=auto
expect 1 'is one word too many' set "$one" "$two" class=auto
expect 1 "takes a program's name" set --command /bin/sh class=auto
expect 1 '--command needs a value' set class=auto --command
expect 1 '"class=auto" is no pid' pause "$one" class=auto
expect 1 "pause: pid $$ is no program" pause $$
take_status
tr '{' '\n' < "$dir/status.json" | grep -o '"pid":.*"paused":[a-z]*' | sed 's/"state".*"class"/"class"/' > "$dir/after"
[ -s "$dir/before" ] && cmp -s "$dir/before" "$dir/after" || fail "something changed: $(diff "$dir/before" "$dir/after")"

# Another user may look, and change nothing of ours. (What users may do to their own: unit_engine_policy.)
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null &&
    chmod 755 "$dir" && setpriv --reuid 65534 --clear-groups -- "$ctl" status > /dev/null 2>&1; then
    setpriv --reuid 65534 --clear-groups -- "$ctl" set "$one" class=batch > "$dir/stdout" 2> "$dir/stderr"
    code=$?
    [ "$code" = 1 ] || fail "another user's mux-ctl set ended with $code"
    grep -q "another user's program: only root may set it" "$dir/stderr" || fail "it says $(cat "$dir/stderr")"
    say "as another user: $(cat "$dir/stderr")"
else
    say "(no other user to try as: left out)"
fi

touch "$dir/go"
expect_pass one two three
expect_empty
stop_daemon
expect 3 "gpumuxd is not running" set 1 class=auto
expect 3 "gpumuxd is not running" pause 1
