#!/bin/sh
# The daemon's table of open files is large from the start: growing it later, when there are threads, holds everything
# up for many milliseconds, time after time.
. "$(dirname "$0")/lib.sh"
room() {
    awk '$1 == "FDSize:" {print $2}' "/proc/$(pid_of daemon)/status"
}
[ -n "$(awk '$1 == "FDSize:"' /proc/self/status)" ] || skip "this system does not tell the size of the table"
limit=$(ulimit -H -n)
[ "$limit" != unlimited ] && [ "$limit" -lt 131072 ] || limit=131072
[ "$limit" -gt 256 ] || skip "so many as are allowed, $limit, are none too many for any process"
start_daemon
now=$(room)
[ -n "$now" ] || skip "this system does not tell the size of the table of that process"
[ "$now" -ge "$limit" ] || fail "room for $now open files, and $limit are allowed"
say "room for $now open files, of $limit that are allowed"
expect_empty
stop_daemon
