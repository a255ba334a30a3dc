#!/bin/sh
# kernels.ptx is made by hand from kernels.cu: every kernel must be in both, with as many parameters.
# Usage: check_ptx.sh DIR
set -eu
cd "$1"

# "name parameters" of every kernel, sorted
from_cu() {
    tr '\n' ' ' < kernels.cu | grep -o '__global__ void gm_[a-z_]*([^)]*)' |
        sed 's/__global__ void //; s/(void)/()/' |
        awk -F'[(]' '{ n = gsub(/,/, ",", $2); print $1, ($2 == ")" ? 0 : n + 1) }' | sort
}
from_ptx() {
    awk '/\.entry/ { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); n = 0; open = 1 }
         open && /^[ \t]*\.param/ { n++ }
         open && /^[)]|[(][)]/ { print name, n; open = 0 }' kernels.ptx | sort
}
cu=$(from_cu)
ptx=$(from_ptx)
if [ "$cu" != "$ptx" ] || [ -z "$cu" ]; then
    echo "kernels.ptx does not match kernels.cu: run nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu"
    echo "kernels.cu:"; echo "$cu"
    echo "kernels.ptx:"; echo "$ptx"
    exit 1
fi
echo "$cu"

# The same of the bench's: all have the same parameters.
cu=$(grep -o '^KERNEL([a-z]*' ../../bench/mix.cu | sed 's/.*(/gm_mix_/' | sort)
ptx=$(grep -o '\.entry gm_mix_[a-z]*' ../../bench/mix.ptx | sed 's/.* //' | sort)
if [ "$cu" != "$ptx" ] || [ -z "$cu" ]; then
    echo "bench/mix.ptx does not match mix.cu, whose head says how it is made"
    exit 1
fi
