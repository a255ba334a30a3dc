#!/bin/sh
# daemon/core is pure policy: its archive needs memory functions and assert, nothing else,
# and has no state outside the memory it is given. (What it may include is in test_deps.sh.) Two are
# the compiler's own: __popcountdi2, its bit count where the machine has no instruction for it, and
# __stack_chk_fail, where a distribution's compiler protects stacks.
# Skipped when the build is instrumented: then every object refers to the sanitizer's runtime.
set -u

core=$BUILD/daemon/core/libgm_core.a
common=$BUILD/common/libgm_common.a

if grep -q '^GM_SANITIZE:[A-Z]*=.' "$BUILD/CMakeCache.txt"; then
    echo "an instrumented build: its symbols say nothing"
    exit 77
fi
for archive in "$core" "$common"; do
    if [ ! -f "$archive" ]; then
        echo "$archive is missing"
        exit 1
    fi
done
# Symbols that the archive $1 needs from outside it, the allowed ones excepted.
foreign() {
    {
        nm --defined-only "$1" | awk 'NF == 3 { print "has", $3 }'
        nm --undefined-only "$1" | awk 'NF == 2 { print "needs", $2 }'
    } | awk '
        BEGIN {
            n = split("memcpy memmove memset memcmp __assert_fail _GLOBAL_OFFSET_TABLE_ " \
                      "__popcountdi2 __stack_chk_fail", allowed)
            for (i = 1; i <= n; i++) has[allowed[i]] = 1
        }
        $1 == "has" { has[$2] = 1 }
        $1 == "needs" && !has[$2] { print $2 }' | sort -u
}

# Variables that the archive $1 could change (constant tables that need relocation are not).
state() {
    nm --defined-only --format=sysv "$1" | awk -F'|' '
        $NF ~ /^ *(\.data|\.data\.[^r].*|\.bss.*|\.tdata.*|\.tbss.*|\*COM\*) *$/ { print $1 }'
}

# The check finds what is not pure: common/ has the clock, files and a level of logging.
if [ -z "$(foreign "$common")" ] || [ -z "$(state "$common")" ]; then
    echo "this check finds neither calls nor state in $common: it cannot be trusted"
    exit 1
fi

bad=0
if [ "$(nm --defined-only "$core" | grep -c ' T gm_sched_step$')" != 1 ]; then
    echo "gm_sched_step is not in $core"
    bad=1
fi
for symbol in $(foreign "$core"); do
    echo "daemon/core needs $symbol"
    bad=1
done
for symbol in $(state "$core"); do
    echo "daemon/core has the variable $symbol"
    bad=1
done
[ $bad = 0 ] && echo "$(nm --defined-only "$core" | grep -c ' T ') functions, all pure"
exit $bad
