#!/bin/sh
# The configuration: its example, what is wrong in it, what is gone, and what rules do.
. "$(dirname "$0")/lib.sh"

# `gpumuxd --check` predicts the next start: each wrong value of config_values.txt is refused with file and line, or warned of,
# and then the daemon starts with it. A daemon that runs refuses the same, and goes on.
part values
values=$(dirname "$0")/config_values.txt
mkdir "$dir/folder" && echo text > "$dir/folder/file"
conf=$dir/gpumux.conf

# set_value VALUE: it is on line 2 of the file.
set_value() {
    printf '# mine\n%s\n' "$1" | sed "s|@|$dir/folder|" > "$conf"
}

# check CODE VALUE
check() {
    set_value "$2"
    "$BUILD/daemon/gpumuxd" --check --config "$conf" > "$dir/said" 2>&1
    code=$?
    [ "$code" = "$1" ] || fail "--check of \"$2\" ended with $code: $(cat "$dir/said")"
    grep -qF "$conf:2: " "$dir/said" || fail "--check of \"$2\" does not say where: $(cat "$dir/said")"
}

[ "$(grep -cE '^(refuse|warn) ' "$values")" -ge 50 ] || fail "there are too few values"
while read -r verdict value; do
    case $verdict in
    refuse) check 1 "$value" ;;
    warn)
        check 0 "$value"
        start_default --config "$conf"
        grep -qE "warning: ($conf:2: |--disk )" "$dir/daemon.out" || fail "the start with \"$value\" says nothing: $(cat "$dir/daemon.out")"
        stop_daemon
        ;;
    esac
done < "$values"
[ -z "$(ls -A "$dir/folder" | grep -v '^file$')" ] || fail "left behind: $(ls -A "$dir/folder")"

set_value 'slice = 1s'
start_default --config "$conf"
for value in 'gpu = 7' 'paged = 4000T' 'disk = @/none:1G'; do
    set_value "$value"
    ! "$ctl" config check > "$dir/said" 2>&1 || fail "config check takes \"$value\""
    grep -qF "$conf:2: " "$dir/said" || fail "config check of \"$value\" says $(cat "$dir/said")"
done
set_value 'disk = @:4000T'
"$ctl" config check > "$dir/said" 2>&1 || fail "config check refuses a large disk: $(cat "$dir/said")"
stop_daemon

# The example of the configuration file has every option, and works with all of its lines in use. A rule for a user who was
# deleted is told and changes nothing.
part example
example=$BUILD/systemd/gpumux.conf
[ -s "$example" ] || fail "there is no $example"
"$BUILD/daemon/gpumuxd" --help | sed -n 's/^ *--\([a-z-]*\).*/\1/p' | grep -Evx 'check|config|drain|user|help|version' > "$dir/names"
[ "$(wc -l < "$dir/names")" -gt 20 ] || fail "the help has no options: $(cat "$dir/names")"
while read -r option; do
    grep -q "^#$option = [^ ]" "$example" || fail "the example lacks $option"
done < "$dir/names"
[ "$(grep -c '^#[^ ]' "$example")" = "$(wc -l < "$dir/names")" ] || fail "the example has other options: $(grep '^#[^ ]' "$example")"
awk 'length > 100 { exit 1 }' "$example" || fail "a line is wider than 100 columns"

# What would be written to the machine stays in this test's folder; the file is read before.
sed 's/^#\([^ ]\)/\1/' "$example" > "$dir/gpumux.conf"
printf 'rule = user=gm-nobody-has-this-name paused\n' >> "$dir/gpumux.conf"
start_default --config "$dir/gpumux.conf" --disk "$dir:64M"
line=$(wc -l < "$dir/gpumux.conf")
grep -q "gpumux.conf:$line: without effect: there is no user \"gm-nobody-has-this-name\"" "$dir/daemon.out" ||
    fail "nothing is said of a deleted user: $(cat "$dir/daemon.out")"
app one linked --bytes 40M --iterations 2
expect_pass one
expect_empty
stop_daemon

# Options that are gone are warnings with file and line, and say what replaces them: for --check, at the start and when the file
# is read again. data/gpumux.conf is the example of the file as it was with them. The lab page's example has none.
part gone
data=$(dirname "$0")/data
conf=$dir/gpumux.conf
sed 's/^#\([^ ]\)/\1/' "$data/gpumux.conf" > "$conf"
sed -n 's/^#\([a-z-]*\) = .*/\1/p' "$data/gpumux.conf" | sort > "$dir/then"
sed -n 's/^#\([a-z-]*\) = .*/\1/p' "$BUILD/systemd/gpumux.conf" | sort > "$dir/now"
comm -23 "$dir/then" "$dir/now" > "$dir/gone"
[ "$(wc -l < "$dir/gone")" -ge 14 ] || fail "gone are only $(cat "$dir/gone")"

# says FILE TIMES: of each one that is gone, so often.
says() {
    while read -r name; do
        line=$(grep -n "^$name = " "$conf" | cut -d: -f1)
        [ "$(grep -c "warning: $conf:$line: $name is gone: [a-z0-9]" "$1")" = "$2" ] || return 1
    done < "$dir/gone"
}
has_read() {
    is_up && says "$dir/daemon.out" 2
}

"$BUILD/daemon/gpumuxd" --check --config "$conf" --socket "$GPUMUX_SOCKET" > "$dir/said" 2>&1 || fail "--check: $(cat "$dir/said")"
says "$dir/said" 1 || fail "--check: $(cat "$dir/said")"
"$BUILD/daemon/gpumuxd" --check --config /dev/null --socket "$GPUMUX_SOCKET" --quantum soon --shared-gpu > "$dir/said" 2>&1 ||
    fail "--check: $(cat "$dir/said")"
grep -q 'warning: command line: --quantum is gone: use slice' "$dir/said" && grep -q ' --shared-gpu is gone: ' "$dir/said" &&
    [ "$(wc -l < "$dir/said")" = 2 ] || fail "--check: $(cat "$dir/said")"

start_default --config "$conf" --disk "$dir:64M"
says "$dir/daemon.out" 1 || fail "at the start: $(cat "$dir/daemon.out")"
kill -HUP "$(pid_of daemon)"
within "$patience" has_read || fail "a reload does not say it: $(cat "$dir/daemon.out")"
"$ctl" config check > "$dir/said" 2>&1 && grep -q 'gone: allotment (line [0-9]*), ' "$dir/said" || fail "config check: $(cat "$dir/said")"
! grep -q 'which needs a restart' "$dir/daemon.out" || fail "something has changed: $(cat "$dir/daemon.out")"
stop_daemon

lab=$data/../../../docs/lab.md
awk '/^A start for/ { is_next = 1 } /^```/ { n += is_next; next } n == 1' "$lab" > "$conf"
[ "$(grep -c ' = ' "$conf")" -ge 10 ] || fail "the page has no example: $(cat "$conf")"
"$BUILD/daemon/gpumuxd" --check --config "$conf" --socket "$GPUMUX_SOCKET" > "$dir/said" 2>&1 || fail "--check of the lab's: $(cat "$dir/said")"
! grep -q 'is gone' "$dir/said" || fail "the lab's example: $(cat "$dir/said")"

# The rules of the page for labs do what its comments say, as `mux-ctl config explain` has it. And what nobody gave is computed.
part explain
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
