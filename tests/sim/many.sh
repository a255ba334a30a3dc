#!/bin/sh
# sh tests/sim/many.sh SIM_ENGINE [SEEDS [FROM]]: so many seeds of the engine's simulation (10,000), a tenth as many with daemons
# that die, and some with jobs, on all processors. The output of what fails lies in $OUT (a new folder in /tmp). Sixteen
# processors take four minutes.
set -u
sim=${1:?SIM_ENGINE}
seeds=${2:-10000}
from=${3:-1000001}
out=${OUT:-$(mktemp -d "${TMPDIR:-/tmp}/gpumux-seeds.XXXXXX")}
mkdir -p "$out" || exit 2

# A block: its last lines stay if it fails.
cat > "$out/block.sh" << 'END'
file=$2/$3.$5.txt
timeout 900 "$1" "--$3" "$4" "$5" > "$file" 2>&1 && code=0 || code=$?
echo "$3 $4 $code" >> "$2/blocks"
[ $code = 0 ] && rm -f "$file" || { tail -n 200 "$file" > "$file.new" && mv "$file.new" "$file"; }
END
: > "$out/blocks"
at=0
while [ $at -lt "$seeds" ]; do
    echo "seeds 100 $((from + at))"
    echo "deaths 10 $((from + at))"
    [ $((at % 400)) != 0 ] || echo "jobs 4 $((from + at))"
    [ $((at % 400)) != 200 ] || echo "jobs-deaths 2 $((from + at))"
    at=$((at + 100))
done | xargs -P "$(nproc)" -L 1 sh "$out/block.sh" "$sim" "$out"
for kind in seeds deaths jobs jobs-deaths; do
    awk -v kind=$kind '$1 == kind { n += $2; bad += $3 != 0 } END { print kind ": " n + 0 " run, " bad + 0 " blocks fail" }' "$out/blocks"
done
grep -h '^sim_engine: seed' "$out"/*.txt 2> /dev/null
! grep -qv ' 0$' "$out/blocks"
