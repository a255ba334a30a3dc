#!/bin/sh
# sh tests/mutants/run.sh [BUILD-DIR] [NAME...]: plants the faults of list.txt and says who catches each (mutants.py).
exec python3 "$(dirname "$0")/mutants.py" run "$@"
