#!/bin/sh
# The rules of the page for labs do what its comments say, as `mux-ctl config explain` has it. And what nobody gave is computed.
. "$(dirname "$0")/lib.sh"
unset GPUMUX_CLASS
# Users and a group that each Debian has stand for those of the page.
sed -n 's/user=alice/user=daemon/; s/unix-group=students/unix-group=nogroup/; /^rule = /p' "$(dirname "$0")/../../docs/lab.md" > "$dir/conf"
[ "$(wc -l < "$dir/conf")" -gt 6 ] || fail "the page has no rules"
start_default --config "$dir/conf"

# begins USER COMMAND CLASS TEXT: such a program begins so; CLASS "" asks for none.
begins() {
    "$ctl" config explain --user="$1" --command="$2" ${3:+--class="$3"} > "$dir/said" 2>&1 &&
        [ "$(tail -n 1 "$dir/said")" = "It begins with class $4" ]
}
explains() {
    within 20 begins "$@" || fail "$*: $(cat "$dir/said")"
}
all='user-gpu=40G user-pinned=120G'
explains daemon ipykernel_launcher '' "interactive; rules say: class=interactive weight=2 $all"
explains daemon train.py '' "auto; rules say: weight=2 $all"
explains daemon train.py batch "batch; rules say: weight=2 admit=fit $all"
explains nobody ipykernel_launcher '' "interactive; rules say: class=interactive weight=0.5 $all"
explains nobody chat.py '' "auto; rules say: weight=0.5 $all"
explains bin ipykernel_launcher '' "interactive; rules say: class=interactive $all"
explains bin train.py '' "batch; rules say: class=batch $all"
grep -qx "binds  command=train\* class=batch  # $dir/conf:8" "$dir/said" || fail "who binds? $(cat "$dir/said")"
grep -A1 'user=daemon weight=2' "$dir/said" | grep -q '^ *for another user$' || fail "why not? $(cat "$dir/said")"
explains daemon train.py latency "auto; rules say: weight=2 $all" # --best-class
grep -qF 'not class=batch: line 6 comes first' "$dir/said" || fail "why not? $(cat "$dir/said")"

"$ctl" config explain --user=gm-nobody --command=x 2> "$dir/said" && fail "it explains for a user that there is not"
grep -q 'there is no user "gm-nobody"' "$dir/said" && [ "$(wc -l < "$dir/said")" = 1 ] || fail "$(cat "$dir/said")"
"$ctl" config explain --command=train.py --json | grep -q '"rules":\[{"rule":"command=\*.*"binds":true,"why":""}.*"class":"batch"' || fail "JSON"
stop_daemon

start_bare() {
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET"
    within "$patience" daemon_is_up_or_dead && ! has_ended daemon || fail "the daemon did not start"
}
start_bare
for option in gpu-budget pinned; do
    "$ctl" config show | grep -q "^$option = .*[GM]iB *# computed$" || fail "$option: $("$ctl" config show)"
done
stop_daemon
