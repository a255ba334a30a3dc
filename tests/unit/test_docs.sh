#!/bin/sh
# The pages say what the programs have, and their links lead somewhere: see docs.py.
set -u
command -v python3 > /dev/null || { echo "skipped: no python3" && exit 77; }
python3 -B "$SOURCE/tests/unit/docs.py" "$SOURCE" "$BUILD"
