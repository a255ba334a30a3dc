#!/bin/sh
# A program gets from gpumux the answers that it gets from a driver, call by call.
. "$(dirname "$0")/lib.sh"

# Invalid and double frees, copies out of range, wrong handles, calls at the wrong time, and the forms of older CUDA versions: a
# program gets from gpumux what it gets from the driver, call by call.
part "bad calls"
program=$BUILD/tests/programs/gm_badcalls
gpu=$(cd "$(dirname "$0")/.." && pwd)/simcuda/badcalls.txt
spawn native "$program"
await native
[ "$code" = 0 ] || fail "without gpumux: $line"
grep -v '^#' "$gpu" > "$dir/gpu.txt" || fail "no answers of a GPU"
diff "$dir/gpu.txt" "$dir/native.out" > "$dir/differences.out" || fail "simcuda does not answer as a GPU did"
start_daemon
if [ "${GM_LINKED:-}" = 1 ]; then
    spawn managed "${program}_linked"
else
    spawn managed env LD_PRELOAD="$shim" "$program"
fi
await managed
[ "$code" = 0 ] || fail "with gpumux: code $code, $line"
grep -q 'gm_badcalls' "$dir/daemon.out" || fail "it was not managed"
diff "$dir/native.out" "$dir/managed.out" > "$dir/differences.out" ||
    fail "$(grep -c '^>' "$dir/differences.out") answers differ"
say "$(grep -c ': ' "$dir/native.out") answers are those of the driver"
expect_empty
stop_daemon

# What a GPU answered about memory and contexts (tests/simcuda/facts.txt), under gpumux. Four answers are its own: no memory of
# gpumux is made for hardware decompression or has a dma-buf, in the last page of an allocation copies go beyond its end, and
# memory that was mapped before is not exported beside a capture.
part "memory and contexts"
[ "${GM_LINKED:-}" != 1 ] || skip "the program of the facts cannot be preloaded with a sanitized shim"
here=$(cd "$(dirname "$0")/.." && pwd)

# sections FILE NAME...
sections() {
    sections_file=$1
    shift
    for sections_name; do
        sed -n "/^== $sections_name\$/,/^== /p" "$sections_file" |
            sed '1d; /^== /d; /^#/d; /^HW decompress capable: /d; /: cuMemGetHandleForAddressRange: /d
                /: cuMemExportToShareableHandle of mapped memory: .*, status/d'
    done
}

# compare NAME SECTION...: the output of NAME has these as the GPU had them.
compare() {
    compare_name=$1
    shift
    sections "$here/simcuda/facts.txt" "$@" > "$dir/expected"
    sections "$dir/$compare_name.out" "$@" > "$dir/got"
    [ -s "$dir/expected" ] || fail "no such facts: $*"
    diff "$dir/expected" "$dir/got" > "$dir/diff.out" || fail "$compare_name: other answers than a GPU's"
    say "$compare_name: $(wc -l < "$dir/got") answers are a GPU's"
}

# The handle that is exported is virtual until then, and the driver's afterwards; or the driver's from the start.
start_daemon
spawn virtual env LD_PRELOAD="$shim" "$BUILD/tests/simcuda/facts"
await virtual
compare virtual "no context" create reserve map sharing handles pointers
compare virtual linear contexts pools "pools and captures" "pools and contexts" "pools and linear memory" \
    "what stays the driver's" "ranges of copies" "sets that wrap around" "captures that are lost" \
    "memory of another process" capture graphs "pools beside a capture"
compare virtual "permits: global" "permits: global, elsewhere" "permits: global, elsewhere local" "permits: local" \
    "permits: local, elsewhere" "permits: relaxed" "permits: relaxed thread" "permits: host function" \
    "permits: callback" "permits: host node"
spawn theirs env LD_PRELOAD="$shim" GPUMUX_VMM_EXPORT=real "$BUILD/tests/simcuda/facts"
await theirs
compare theirs "no context" create reserve map sharing handles pointers
expect_empty
stop_daemon
