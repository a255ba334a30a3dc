#!/bin/sh
# The rooms of common/, shim/ and daemon/: arrows go one way, and no files stand in a circle. rooms.py has the table.
# Offences that are planted into copies of the tree must be found.
set -u
command -v python3 >/dev/null || { echo "this test needs python3"; exit 1; }
exec python3 "$SOURCE/tests/unit/rooms.py" "$SOURCE" --plant
