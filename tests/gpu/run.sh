#!/bin/sh
# sh tests/gpu/run.sh BUILD-DIR [--only NAME]... [--list]
# sh tests/gpu/run.sh BUILD-DIR --set SET,... [--seconds S] [--simcuda]
#
# What needs a real GPU. Without --set: every test of run.py, in 10 to 15 minutes. With it, one after the other, each in
# its share of the time (580 s), so that one call is enough:
#
#   tests       those of run.py; they take what they need
#   crosscheck  nothing bypasses the shim: what CUPTI sees against what the shim saw
#   matrix      frameworks, natively and as two copies under gpumux, equal to the bit
#   soak        random programs start and end
#   overhead    bench/run-gpu.sh --set overhead: what gpumux costs when everything fits
#   all         all but tests
#
# Needs the CUDA driver and a python3 with PyTorch and transformers (torchvision or timm for ResNet-152); no compiler
# and no package beyond; of the frameworks in the matrix those that are there. BUILD-DIR is a build of this tree, made
# anywhere (tests/setup.sh --portable makes one that moves). --simcuda: on the simulated GPU, to try this out (not `tests`).
#
# Each test or case prints one line, "ok NAME (...)" or "FAIL NAME (...)", or "skipped NAME (...)". Last come the
# tables of the sets, and "N passed, N failed". The logs go into a file for each set under $OUT, with all output in
# run.txt, or to a folder that is named when something fails.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
command -v python3 > /dev/null 2>&1 || { echo "FAIL: no python3"; echo "0 passed, 1 failed"; exit 1; }
case " $* " in
*" --set "*) ;;
*) exec python3 -u "$here/run.py" "$@" ;;
esac

usage() {
    sed -n '3s/^# /usage: /p' "$0" >&2
    exit 2
}
[ -d "$1" ] || usage
build=$(cd "$1" && pwd) || exit 2
shift
sets=
seconds=580
simcuda=
while [ $# -gt 0 ]; do
    case $1 in
    --set) sets=${2:?--set SET,...} && shift ;;
    --seconds) seconds=${2:?--seconds S} && shift ;;
    --simcuda) simcuda=--simcuda ;;
    *) usage ;;
    esac
    shift
done
sets=$(echo "$sets" | tr , ' ')
[ "$sets" != all ] || sets="crosscheck matrix overhead soak"
[ "$seconds" -ge 20 ] 2> /dev/null || usage

weight() {
    case $1 in
    crosscheck) echo 18 ;;
    matrix) echo 40 ;;
    overhead) echo 30 ;;
    soak) echo 12 ;;
    tests) echo 95 ;;
    *) echo 0 ;;
    esac
}
weights=0
for one in $sets; do
    [ "$(weight "$one")" -gt 0 ] || usage
    weights=$((weights + $(weight "$one")))
done
[ "$weights" -gt 0 ] || usage
case $simcuda," $sets " in --simcuda,*" tests "*) usage ;; esac

begun=$(date +%s)
work=$(mktemp -d "${TMPDIR:-/tmp}/gpumux-run.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
passed=0
child=
trap 'trap "" INT TERM; [ -z "$child" ] || kill -TERM "$child" 2> /dev/null; wait; exit 1' INT TERM

# command_of SET SECONDS: runs it.
command_of() {
    case $1 in
    tests) set -- timeout -k 20 "$2" python3 -B -u "$here/run.py" "$build" ;;
    overhead)
        set -- timeout -k 20 "$(($2 + 5))" sh "$here/../../bench/run-gpu.sh" "$build" --set overhead \
            --budget "$(($2 > 30 ? $2 : 30))" $simcuda
        ;;
    *) set -- timeout -k 20 "$(($2 + 15))" python3 -B -u "$here/$1.py" "$build" --seconds "$2" $simcuda ;;
    esac
    "$@"
}

for one in $sets; do
    left=$((seconds - ($(date +%s) - begun)))
    # Of what is left, as much as it is of what is to come; what one does not need the others get.
    share=$((left * $(weight "$one") / weights - 3))
    weights=$((weights - $(weight "$one")))
    if [ "$share" -lt 5 ]; then
        echo "FAIL $one (no time was left)" | tee "$work/$one.out"
        failed=$((failed + 1))
        continue
    fi
    echo "== $one: $share s"
    from=$(date +%s)
    command_of "$one" "$share" > "$work/$one.out" 2>&1 &
    child=$!
    wait "$child"
    code=$?
    child=
    echo "-- $one: code $code after $(($(date +%s) - from)) s"
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done

for one in $sets; do
    echo "==== $one"
    cat "$work/$one.out"
done > "$work/run.txt"
[ -z "${OUT:-}" ] || cp "$work/run.txt" "$OUT/run.txt"
for one in $sets; do
    echo
    echo "==== $one"
    grep '^FAIL' "$work/$one.out" | cut -c 1-500
    case $one in
    overhead) # the table, and the goals that were missed
        sed -n '/^overhead: /,/^-- /p' "$work/$one.out" | grep -v ': met$' ;;
    matrix | crosscheck) # behind the blank line
        awk '/^$/ { text = ""; next } { text = text $0 "\n" } END { printf "%s", text }' "$work/$one.out" |
            grep -v '^FAIL'
        ;;
    *) tail -n 14 "$work/$one.out" | grep -v '^FAIL' ;;
    esac
done
echo "all after $(($(date +%s) - begun)) s: sets $passed passed, $failed failed"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
