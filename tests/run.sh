#!/bin/sh
# sh tests/run.sh: installs what is missing, builds, and runs the tests that need no GPU: all of them plainly, and under
# the address and undefined-behaviour sanitizers and under the thread sanitizer those that find most there: unit tests,
# short simulations, and the integration tests with the most threads.
#
#   --quick   without the sanitizer builds
#   --long    everything in all three builds, and what takes minutes by itself: benches, all seeds
#   --demo    also bench/demo.sh on the simulated GPU, counted as a test
#
# The last line is "N passed, N failed", with ", N skipped" if tests were skipped (each is named, with its
# reason, before); the exit code is 0 only if nothing failed and something passed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/setup.sh"

quick=
long=
demo=
for option; do
    case $option in
    --quick) quick=1 ;;
    --long) long=1 ;;
    --demo) demo=1 ;;
    *) gm_die "usage: sh tests/run.sh [--quick | --long] [--demo]" ;;
    esac
done

passed=0
failed=0
skipped=0
summary=

note() {
    summary="$summary$*
"
}

# suite NAME DIR CTEST-ARGUMENTS [CMAKE-ARGUMENT...]: build into DIR and run its tests, $at_once at once. With --long
# all of them, else those that the arguments to ctest choose.
suite() {
    name=$1
    dir=$2
    chosen=$3
    shift 3
    [ -z "$long" ] || chosen=
    echo "== $name: building in $dir"
    if ! gm_configure "$dir" "$@" || ! gm_build "$dir"; then
        failed=$((failed + 1))
        note "$name: FAILED: does not build (see $dir.log)"
        return
    fi
    echo "== $name: testing"
    # shellcheck disable=SC2086 # a list of arguments
    (cd "$dir" && ctest $chosen --output-on-failure --no-tests=error --parallel "$at_once") 2>&1 | tee "$dir/ctest.log"
    # "12/40 Test #12: wire ....   Passed    0.01 sec", "***Failed", "***Timeout", "***Skipped", ...
    sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: //p' "$dir/ctest.log" > "$dir/ctest.lines"
    all=$(wc -l < "$dir/ctest.lines")
    bad_or_skipped=$(grep -c '\*\*\*' "$dir/ctest.lines")
    skip=$(grep -c '\*\*\*Skipped' "$dir/ctest.lines")
    good=$((all - bad_or_skipped))
    bad=$((bad_or_skipped - skip))
    if [ "$all" = 0 ]; then
        bad=1
        note "$name: FAILED: no tests ran"
    fi
    note "$name: $good passed, $bad failed, $skip skipped"
    grep '\*\*\*' "$dir/ctest.lines" | grep -v '\*\*\*Skipped' | sed 's/ .*//' > "$dir/ctest.bad"
    while read -r test; do note "    FAILED $test"; done < "$dir/ctest.bad"
    grep '\*\*\*Skipped' "$dir/ctest.lines" | sed 's/ .*//' > "$dir/ctest.skipped"
    while read -r test; do
        # the reason is the last line that the test said
        note "    skipped $test: $(awk -v test="$test" '/^[0-9]*\/[0-9]* Testing: / { is_it = $3 == test }
            is_it && /^<end of output>/ { sub(/^skipped: /, "", last); print last; exit }
            { last = $0 }' "$dir/Testing/Temporary/LastTest.log")"
    done < "$dir/ctest.skipped"
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
}

gm_install
at_once=$((2 * $(nproc))) # tests wait much of the time, for copies, slices, each other
programs=OFF # of tests/gpu: they need a GPU
[ -z "$long" ] || programs=ON
suite plain "$root/build" "-LE long" "-DGM_GPU_PROGRAMS=$programs"
if [ -z "$quick" ]; then
    suite address "$root/build-asan" "-L sanitized -LE long" -DGM_SANITIZE=address
    suite thread "$root/build-tsan" "-L sanitized -LE long" -DGM_SANITIZE=thread
fi
if [ -n "$demo" ]; then
    echo "== demo"
    if sh "$root/bench/demo.sh" --simcuda; then
        passed=$((passed + 1))
        note "demo: passed"
    else
        failed=$((failed + 1))
        note "demo: FAILED"
    fi
fi

echo
printf '%s' "$summary"
if [ "$skipped" = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
