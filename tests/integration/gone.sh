#!/bin/sh
# Options that are gone are warnings with file and line, and say what replaces them: for --check, at the start and when the
# file is read again. data/gpumux.conf is the example of the file as it was with them. The lab page's example has none.
. "$(dirname "$0")/lib.sh"
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
