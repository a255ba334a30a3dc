#!/bin/sh
# The dependency direction: which folder may include what. One way only, and a
# pure core. Prints each offending line as file:line: text: reason.
#
#   shim/ -> common/     daemon/ -> daemon/core/ -> the pure headers of common/
#
# Checks first that it finds what it looks for, in a small tree made for it.
set -u

# Sources of the tree $1, or of one folder of it.
sources() {
    (cd "$1" && find common include shim daemon tests bench -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.cu' \) 2>/dev/null | sort)
}

# Every include line of the tree $1 that is not allowed; the last line is the number of files.
check() {
    (cd "$1" && sources . | xargs awk '
    function offend(reason) {
        printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, reason
    }
    # Whether `path` begins with one of the words of `list`; a word that is no folder must be equal.
    function is_in(path, list,    n, word, i) {
        n = split(list, word, " ")
        for (i = 1; i <= n; i++)
            if (word[i] ~ /\/$/ ? index(path, word[i]) == 1 : path == word[i])
                return 1
        return 0
    }
    FNR == 1 {
        files++
        room = FILENAME
        sub(/^\.\//, "", room)
        if (room ~ /^daemon\/core\//) {
            room = "daemon/core"
            ours = "daemon/core/ common/chunk.h common/classes.h common/events.def common/parts.def common/settings.h common/sums.h common/units.h"
        } else {
            sub(/\/.*/, "", room)
            ours = room == "common" ? "common/" : \
                   room == "shim" ? "shim/ common/ include/" : \
                   room == "daemon" ? "daemon/ common/" : \
                   room == "include" ? "include/" : "*"
        }
    }
    /^[ \t]*#[ \t]*include/ {
        line = $0
        sub(/^[ \t]*#[ \t]*include(_next)?[ \t]*/, "", line)
        mark = substr(line, 1, 1)
        if (mark != "\"" && mark != "<") {
            if (ours != "*")
                offend("an include that names no file")
            next
        }
        path = substr(line, 2)
        sub(/[">].*/, "", path)
        if (ours == "*")
            next
        if (path ~ /(^|\/)\.\.?(\/|$)/ || path ~ /^\//)
            offend("write the path from the root of the tree")
        else if (mark == "\"") {
            if (!is_in(path, ours))
                offend(room "/ may include " ours " only")
        } else if (path ~ /^(common|shim|daemon|tests|bench|include)\//)
            offend("our own headers stand in quotes")
        else if (room == "daemon/core") {
            if (!is_in(path, "assert.h limits.h stdalign.h stdbool.h stddef.h stdint.h string.h"))
                offend("the core is pure: no I/O, clock, allocation or CUDA")
        } else if (path ~ /^(cuda|nv|cu[A-Z])/ && (room == "common" || room == "include"))
            offend(room "/ is free of CUDA")
        else if (path ~ /^cuda_runtime|^cublas|^cudnn/)
            offend("the driver API only")
        else if (path ~ /^(uv\.h|uv\/|cjson\/|systemd\/)/ && room != "daemon")
            offend("a library of the daemon")
    }
    END { print files + 0 }')
}

# A tree with every kind of offence. A line that must be reported says BAD.
self_test() {
    tree=$(mktemp -d) || exit 1
    trap 'rm -rf "$tree"' EXIT
    mkdir -p "$tree/common" "$tree/include" "$tree/shim" "$tree/daemon/core" "$tree/tests/unit" \
        "$tree/bench"
    cat >"$tree/common/a.c" <<'END'
#include "common/a.h"
#include <stdint.h>
#include "shim/gate.h" // BAD
#include "daemon/engine/state/engine.h" // BAD
#include <cuda.h> // BAD
#include <cudaTypedefs.h> // BAD
#include <uv.h> // BAD
#include "a.h" // BAD
#include "../shim/gate.h" // BAD
#include "common/../shim/gate.h" // BAD
#include <shim/gate.h> // BAD
#include "tests/help.h" // BAD
#include HEADER // BAD
END
    cat >"$tree/include/gpumux.h" <<'END'
#include <stdint.h>
#include "common/a.h" // BAD
#include <cuda.h> // BAD
END
    cat >"$tree/shim/a.c" <<'END'
#include "shim/gate.h"
#include "shim/hooks.def"
#include "common/wire.h"
#include "include/gpumux.h"
#include <cuda.h>
  #  include   "daemon/engine/state/engine.h" // BAD
#include "daemon/core/sched.h" // BAD
#include <cuda_runtime.h> // BAD
#include <cjson/cJSON.h> // BAD
END
    cat >"$tree/daemon/a.c" <<'END'
#include "daemon/engine/state/engine.h"
#include "daemon/core/sched.h"
#include "common/wire.h"
#include <uv.h>
#include <cuda.h>
#include "shim/gate.h" // BAD
#include "bench/clock.h" // BAD
END
    cat >"$tree/daemon/core/a.h" <<'END'
#include "daemon/core/table.h"
#include "common/chunk.h"
#include <assert.h>
#include <string.h>
#include "common/clock.h" // BAD
#include "common/wire.h" // BAD
#include "common/chunk.h.h" // BAD
#include "daemon/engine/state/engine.h" // BAD
#include <stdlib.h> // BAD
#include <stdio.h> // BAD
#include <time.h> // BAD
#include <cuda.h> // BAD
#include <uv.h> // BAD
END
    cat >"$tree/tests/unit/a.c" <<'END'
#include "shim/gate.h"
#include "daemon/core/sched.h"
#include "tests/help.h"
#include <cuda.h>
END
    cp "$tree/tests/unit/a.c" "$tree/bench/a.c"

    check "$tree" | sed '$d' | sed 's/^\([^:]*:[0-9]*\):.*/\1/' | sort >"$tree/found"
    (cd "$tree" && grep -rn 'BAD$' common include shim daemon tests bench |
        sed 's/^\([^:]*:[0-9]*\):.*/\1/' | sort) >"$tree/expected"
    if ! diff "$tree/expected" "$tree/found" >"$tree/diff"; then
        echo "this check does not find what it must (<: not found, >: found wrongly):"
        cat "$tree/diff"
        exit 1
    fi
    echo "self-test: $(wc -l <"$tree/expected") offences, all found"
}

self_test
result=$(check "$SOURCE")
offences=$(printf '%s\n' "$result" | sed '$d')
files=$(printf '%s\n' "$result" | tail -n 1)
if [ -n "$offences" ]; then
    printf '%s\n' "$offences"
    exit 1
fi
if [ "$files" -lt 10 ]; then
    echo "only $files files found in $SOURCE: is it the source tree?"
    exit 1
fi
echo "$files files, every include goes the right way"
