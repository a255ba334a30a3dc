#!/bin/sh
# `gpumuxd --check` predicts the next start: each wrong value of config_values.txt is refused with file and line, or warned
# of, and then the daemon starts with it. A daemon that runs refuses the same, and goes on.
. "$(dirname "$0")/lib.sh"
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
