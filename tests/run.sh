#!/bin/sh
# sh tests/run.sh: installs what is missing, builds, and runs the tests that need no GPU: all of them plainly, and under
# the address and undefined-behaviour sanitizers and under the thread sanitizer those that find most there: unit tests,
# short simulations, and the integration tests with the most threads.
#
#   --quick   without the sanitizer builds
#   --long    everything in all three builds, and what takes minutes by itself: benches, all seeds
#   --demo    also bench/demo.sh on the simulated GPU, counted as a test
#
# Tests run several at once. Up to five of a build that fail there run once more, one after the other, when nothing else of
# this script runs: what only a busy machine makes fail passes then. The last lines name each of them, as a rare fault of
# ours may look the same. After a finding of a sanitizer nothing runs again: it is a fault, however rare.
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
last_failed=Testing/Temporary/LastTestsFailed.log # of ctest, in the build folder

note() {
    summary="$summary$*
"
}

# build NAME DIR TARGET [CMAKE-ARGUMENT...]: into DIR; $DIR.built is there if that went well.
build() {
    name=$1
    dir=$2
    target=$3
    shift 3
    rm -f "$dir.built"
    echo "== $name: building in $dir"
    gm_configure "$dir" "$@" && gm_build "$dir" "$target" && touch "$dir.built"
}

# run_tests DIR CTEST-ARGUMENTS: $at_once at once. With --long all of them, else those that the arguments to ctest choose.
run_tests() {
    chosen=$2
    [ -z "$long" ] || chosen=
    rm -f "$1/$last_failed"
    [ -f "$1.built" ] || return 0
    # shellcheck disable=SC2086 # a list of arguments
    (cd "$1" && ctest $chosen --output-on-failure --no-tests=error --parallel "$at_once") 2>&1 | tee "$1/ctest.log"
}

# run_again DIR: alone, those that failed beside others.
run_again() {
    rm -f "$1/ctest.again.log"
    [ -f "$1/$last_failed" ] || return 0
    ! grep -q 'Sanitizer: \|runtime error: ' "$1/ctest.log" || return 0
    failures=$(wc -l < "$1/$last_failed")
    [ "$failures" -le 5 ] || return 0
    echo "== again, alone: $failures"
    (cd "$1" && ctest --rerun-failed --output-on-failure) 2>&1 | tee "$1/ctest.again.log"
}

# passed_alone TEST DIR
passed_alone() {
    [ -f "$2/ctest.again.log" ] && grep -q "Test *#[0-9]*: $1 \.* *Passed" "$2/ctest.again.log"
}

# count NAME DIR: what came of them.
count() {
    name=$1
    dir=$2
    if [ ! -f "$dir.built" ]; then
        failed=$((failed + 1))
        note "$name: FAILED: does not build (see $dir.log)"
        return
    fi
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
    grep '\*\*\*' "$dir/ctest.lines" | grep -v '\*\*\*Skipped' | sed 's/ .*//' > "$dir/ctest.bad"
    names=
    while read -r test; do
        if passed_alone "$test" "$dir"; then
            good=$((good + 1))
            bad=$((bad - 1))
            names="$names    failed beside others, passed alone: $test
"
        else
            names="$names    FAILED $test
"
        fi
    done < "$dir/ctest.bad"
    note "$name: $good passed, $bad failed, $skip skipped"
    summary="$summary$names"
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

build_sanitized() {
    target=gm_sanitized # no more than the tests that run
    [ -z "$long" ] || target=all
    build address "$root/build-asan" "$target" -DGM_SANITIZE=address
    build thread "$root/build-tsan" "$target" -DGM_SANITIZE=thread
}

# One part uses the processors that another leaves idle: plain tests wait for copies, slices and each other, so the
# sanitizers' builds are made meanwhile, but give way to them; then the tests of both run side by side.
gm_install
at_once=$((3 * $(nproc)))
programs=OFF # of tests/gpu: they need a GPU
[ -z "$long" ] || programs=ON
build plain "$root/build" all "-DGM_GPU_PROGRAMS=$programs"
if [ -z "$quick" ]; then
    build_sanitized > "$root/build/sanitized.out" 2>&1 &
    builder=$!
    trap 'kill "$builder" 2> /dev/null; exit 1' INT TERM HUP
    renice -n 10 -p "$builder" > /dev/null
fi
echo "== plain: testing"
run_tests "$root/build" "-LE long"
if [ -z "$quick" ]; then
    wait "$builder"
    cat "$root/build/sanitized.out"
fi
run_again "$root/build"
count plain "$root/build"
if [ -z "$quick" ]; then
    echo "== address and thread: testing"
    run_tests "$root/build-asan" "-L sanitized -LE long" > /dev/null &
    run_tests "$root/build-tsan" "-L sanitized -LE long"
    wait $!
    [ ! -f "$root/build-asan.built" ] || cat "$root/build-asan/ctest.log"
    run_again "$root/build-asan"
    run_again "$root/build-tsan"
    count address "$root/build-asan"
    count thread "$root/build-tsan"
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
[ -z "$long" ] || ! command -v python3 > /dev/null || python3 "$root/tests/lines.py"
printf '%s' "$summary"
if [ "$skipped" = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
