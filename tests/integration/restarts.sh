#!/bin/sh
# The daemon and its keeper die at random and at every named point, and a supervisor starts the daemon again: no program
# sees a wrong byte, all go on, and nothing is left (restarts.py).
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "the programs preload the shim"
exec_at=$(cd "$(dirname "$0")" && pwd)
trap - EXIT
rm -rf "$dir"
exec python3 "$exec_at/restarts.py" "$BUILD"
