#!/bin/sh
# threaded.txt names every unit test that can start a thread.
set -u
found=$(find "$BUILD/tests/unit" -maxdepth 1 -type f -perm -u+x -name 'test_*' -exec nm -A -D --undefined-only {} + |
    sed -nE 's,^.*/test_([a-z_0-9]*):.* (pthread_create|uv_thread_create|uv_queue_work)(@.*)?$,\1,p' | sort -u)
listed=$(grep -v '^#' "$SOURCE/tests/unit/threaded.txt" | tr ' ' '\n')
[ -n "$found" ] || {
    echo "FAILED: no unit test of $BUILD starts a thread"
    exit 1
}
code=0
for test in $found; do
    [ -f "$SOURCE/tests/unit/test_$test.c" ] || continue # of an older build
    echo "$listed" | grep -qx "$test" || {
        echo "FAILED: test_$test can start a thread, and tests/unit/threaded.txt does not name it"
        code=1
    }
done
for test in $listed; do
    [ -f "$SOURCE/tests/unit/test_$test.c" ] || {
        echo "FAILED: tests/unit/threaded.txt names $test, which there is not"
        code=1
    }
done
exit "$code"
