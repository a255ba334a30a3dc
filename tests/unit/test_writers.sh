#!/bin/sh
# One file writes each field of the engine's state: writers.py has the rule. Second writers that are planted into copies of
# the tree must be found.
set -u
command -v python3 >/dev/null || { echo "this test needs python3"; exit 1; }
exec python3 "$SOURCE/tests/unit/writers.py" "$SOURCE" --plant
