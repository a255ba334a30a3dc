#!/bin/sh
# The daemon's table of open files is as large as it will ever be before it has threads: growing it later holds
# everything up for many milliseconds, time after time.
. "$(dirname "$0")/lib.sh"
room() {
    awk '$1 == "FDSize:" {print $2}' "/proc/$(pid_of daemon)/status"
}
[ -n "$(awk '$1 == "FDSize:"' /proc/self/status)" ] || skip "this system does not tell the size of the table"
limit=$(ulimit -H -n)
[ "$limit" != unlimited ] && [ "$limit" -lt 65536 ] || limit=65536
start_daemon
before=$(room)
[ "$before" -ge "$limit" ] || fail "room for $before open files, and $limit are allowed"
app one linked --bytes 96M --allocs 48 --iterations 2 --seed 1
expect_pass one
[ "$(room)" = "$before" ] || fail "the table grew from $before to $(room)"
say "room for $before open files, of $limit that are allowed"
expect_empty
stop_daemon
