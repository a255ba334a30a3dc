#!/bin/sh
# Programs start, and they, the daemon and its keeper are killed at random moments: who is let alone finds new memory zero and
# its bytes right, and nothing is left (starts.py). STARTS: how many programs.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "the programs preload the shim"
exec_at=$(cd "$(dirname "$0")/../gpu" && pwd)
trap - EXIT
rm -rf "$dir"
exec python3 "$exec_at/starts.py" "$BUILD" --simcuda --starts "${STARTS:-60}"
