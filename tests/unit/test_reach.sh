#!/bin/sh
# The step has no effect outside, and reaches nothing that acts. Offences that are planted must be found.
set -u
command -v python3 >/dev/null || { echo "this test needs python3"; exit 1; }
exec python3 "$SOURCE/tests/unit/reach.py" "$SOURCE" --plant
