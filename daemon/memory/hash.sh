#!/bin/sh
# Makes hash.ptx from hash.cu, or with --check tells whether it is up to date: always by the checksum
# of its sources, which it carries, and with the very same nvcc by making it anew.
# Usage: hash.sh [--check]; NVCC names the compiler
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
PATH=$PATH:/usr/local/cuda/bin

sources() {
    cat hash.cu hash_layout.h | sha256sum | cut -d ' ' -f 1
}

# Any driver that gpumux runs on takes this version; nvcc writes the newest one. ptxas would refuse
# what is newer.
make_ptx() {
    echo "// Made by hash.sh from hash.cu and hash_layout.h ($(sources))"
    "$nvcc" -ptx -arch=compute_75 -I ../.. -o - hash.cu | sed 's/^\.version .*/.version 7.0/'
}

if [ "${1:-}" != --check ]; then
    make_ptx > hash.ptx.new
    mv hash.ptx.new hash.ptx
    exit 0
fi
if ! head -n 1 hash.ptx | grep -q "($(sources))"; then
    echo "hash.ptx was made from other sources: run daemon/memory/hash.sh where there is nvcc"
    exit 1
fi
release=$(sed -n 's/^\/\/ Cuda compilation tools, //p' hash.ptx)
if ! command -v "$nvcc" > /dev/null || ! "$nvcc" --version | grep -qF "$release"; then
    echo "its sources are those of hash.ptx; not made anew: no nvcc, or another one than $release"
    exit 0
fi
make_ptx > "${TMPDIR:-/tmp}/hash.ptx.$$"
cmp hash.ptx "${TMPDIR:-/tmp}/hash.ptx.$$" || {
    rm -f "${TMPDIR:-/tmp}/hash.ptx.$$"
    echo "nvcc makes another hash.ptx of its sources: run daemon/memory/hash.sh"
    exit 1
}
rm -f "${TMPDIR:-/tmp}/hash.ptx.$$"
echo "hash.ptx is what $release makes of its sources"
