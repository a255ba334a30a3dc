#!/bin/sh
# sh tests/gpu/profile.sh BUILD-DIR [SANITIZER]
#
# mux-ctl profile on a real GPU: kernels of every kind (profile/kernels.cu), a product by cuBLAS, and a small PyTorch model
# if that is there. SANITIZER is the folder of libsanitizer-public.so, from the wheel nvidia-cuda-sanitizer-api of PyPI; without
# it: where the build found it. Needs nvcc for kernels.cu. Takes a minute or two; each step has a limit.
#
# Each check prints "ok" or "FAIL"; then come the profiles as tables, and last the table of the checks. Records, profiles and
# outputs go to $OUT, or to a folder that is named.
set -u
umask 022 # a profile that a group may write is not read
here=$(cd "$(dirname "$0")" && pwd) || exit 2
build=$(cd "${1:?usage: profile.sh BUILD-DIR [SANITIZER]}" && pwd) || exit 2
ctl=$build/daemon/mux-ctl
library=$build/shim/profiler/libgpumux-profile.so
out=${OUT:-$(mktemp -d)}
PATH=$PATH:/usr/local/cuda/bin
[ -f "$library" ] || { echo "FAIL: $library is not built: sh tests/setup.sh --sanitizer, and nvcc"; exit 1; }
[ -z "${2:-}" ] || export GPUMUX_SANITIZER="$(cd "$2" && pwd)/libsanitizer-public.so"
mkdir -p "$out"
export GPUMUX_PROFILE_LIB="$library"
: > "$out/checks"

# check NAME CONDITION...: one line, and one for the table.
check() {
    what=$1
    shift
    if "$@" > /dev/null 2>&1; then verdict=ok; else verdict=FAIL; fi
    echo "$verdict $what"
    echo "$verdict $what" >> "$out/checks"
}

note() {
    echo "     $*"
    echo "     $*" >> "$out/checks"
}

seconds() {
    awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $1 }"
}

# profile NAME COMMAND...: into NAME.profile, output in NAME.out; then by preloading if the driver did not load the library.
profile() {
    name=$1
    shift
    begin=$(date +%s.%N)
    timeout 200 "$ctl" profile -o "$out/$name.profile" --keep "$out/$name.records" -- "$@" > "$out/$name.out" 2>&1
    code=$?
    way=CUDA_INJECTION64_PATH
    if [ ! -s "$out/$name.profile" ]; then
        way=LD_PRELOAD
        timeout 200 "$ctl" profile -o "$out/$name.profile" --keep "$out/$name.records" -- \
            env LD_PRELOAD="$library" "$@" > "$out/$name.preload.out" 2>&1
        code=$?
    fi
    check "$name: the program ends as without the profiler, and there is a profile (by $way)" \
        test $code = 0 -a -s "$out/$name.profile"
    note "$name: $(seconds "$begin") s with the profiler"
    [ -s "$out/$name.profile" ] || tail -n 15 "$out/$name.out" "$out/$name".preload.out
}

# has NAME KERNEL LINE: whether this line follows that kernel's in NAME.profile.
has() {
    awk -v kernel="$2" -v line="$3" '$1 == "kernel" { is_in = $8 == kernel } is_in && $0 ~ line { found = 1 }
        END { exit !found }' "$out/$1.profile"
}

# --- kernels of every kind ---
if nvcc -O2 -std=c++17 -arch=native -o "$out/kernels" "$here/profile/kernels.cu" 2> "$out/nvcc.out" ||
    nvcc -O2 -std=c++17 -o "$out/kernels" "$here/profile/kernels.cu" 2>> "$out/nvcc.out"; then
    begin=$(date +%s.%N)
    check "kernels: right without the profiler" timeout 60 "$out/kernels"
    note "kernels: $(seconds "$begin") s without the profiler"
    profile kernels "$out/kernels"
    check "kernels: right with it" grep -q "results are right" "$out/kernels.out"
    check "addition: linear" has kernels gm_add '^touch 0 0 0\+4/1\*w24 0 1$'
    check "addition: its third address, too" has kernels gm_add '^touch 16 0 0\+4/1\*w24 0 1$'
    check "fixed" has kernels gm_fixed '^touch 0 0 1048576 0 1$'
    check "threads: linear in the launch's dimensions" has kernels gm_threads '^touch 0 0 0\+8/1\*gx\*bx 0 1$'
    check "rows: strided" has kernels gm_rows '^touch 0 0 .* 0\+1/1\*w8 0\+1/1\*w16$'
    check "append: the start follows the position" has kernels gm_append '^touch 0 0\+4/1\*w8\*w12 32768 0 1$'
    check "gather: no template" has kernels gm_gather '^other 0$'
    check "chase: touched, and not named" has kernels gm_chase '^kernel [0-9a-f]* [0-9]* 12 [0-9]* [0-9]* 16777216 '
    check "unused: not touched" has kernels gm_unused '^none 8$'
    "$out/kernels" --registers > "$out/registers"
    awk '$1 == "kernel" { print "registers", $8, $3 }' "$out/kernels.profile" 2> /dev/null | sort > "$out/registers.profile"
    check "registers: as the driver says them without the profiler" sh -c "[ -s '$out/registers' ] && sort '$out/registers' | cmp - '$out/registers.profile'"

    # Under gpumux, which is given less than the program needs: each kernel is known again, and results stay right.
    mkdir -p "$out/config/gpumux/profiles"
    under() {
        rm -f "$out/shim.log"
        XDG_CONFIG_HOME="$out/config" GPUMUX_LOG="$out/shim.log" timeout 100 "$ctl" run --require --socket "$out/socket" \
            -- "$out/kernels" --seconds 3 > "$out/under.out" 2>&1
    }
    "$build/daemon/gpumuxd" --socket "$out/socket" --gpu-budget 1G --pinned 4G --oversize host > "$out/daemon.out" 2>&1 &
    daemon=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do "$ctl" status --socket "$out/socket" > /dev/null 2>&1 && break; sleep 1; done
    cp "$out/kernels.profile" "$out/config/gpumux/profiles/"
    check "gpumux: right with the profile" under
    cp "$out/shim.log" "$out/shim.right.log" 2> /dev/null
    check "gpumux: all 8 kernels are known by it" test "$(grep -c ': by its profile' "$out/shim.log")" = 8
    sed -E 's,(touch [0-9]+ [^ ]+ [^ ]+\+[0-9]+)/1,\1/2,' "$out/kernels.profile" > "$out/config/gpumux/profiles/kernels.profile"
    check "gpumux: right with half of each extent" under
    sed -E 's,^(touch [0-9]+) [0-9]+,\1 17179869184,' "$out/kernels.profile" > "$out/config/gpumux/profiles/kernels.profile"
    check "gpumux: right with shifted starts" under
    check "gpumux: the log names the kernels that lead elsewhere" grep -q 'kernel gm_add: its profile is not used: it leads out' "$out/shim.log"
    kill "$daemon"
    wait "$daemon"
else
    echo "skipped kernels: no nvcc, or it failed: $(tail -n 1 "$out/nvcc.out")"
fi

# --- cuBLAS ---
timeout 100 python3 "$here/profile/product.py" > "$out/product.native" 2>&1
case $? in
0)
    profile product python3 "$here/profile/product.py"
    check "product: right with the profiler" grep -q "results are right" "$out/product.out"
    check "product: a kernel with a linear address" grep -qE '^touch [0-9]+ 0 0\+4/1\*' "$out/product.profile"
    ;;
77) echo "skipped product: $(tail -n 1 "$out/product.native")" ;;
*) check "product: right without the profiler" false ;;
esac

# --- PyTorch ---
model='import torch
m = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(65536, 512)).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(8 + 8 * (step % 3), 3, 32, 32, device="cuda")
    loss = m(x).square().mean(); o.zero_grad(); loss.backward(); o.step()
print("loss", loss.item())'
if python3 -c 'import torch; torch.zeros(1).cuda()' > /dev/null 2>&1; then
    profile model python3 -c "$model"
fi

for name in kernels product model; do
    [ -s "$out/$name.profile" ] || continue
    echo "--- $name"
    "$ctl" profile --show "$out/$name.profile" | cut -c 1-150 | head -n 80
done
echo "--- checks ($(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1); files: $out)"
for name in kernels product model; do
    [ ! -s "$out/$name.out" ] || sed -n "/ launches of /,\$s/^/$name: /p" "$out/$name.out" | grep -v 'The profile is'
    [ ! -s "$out/$name.out" ] || grep -h '^gpumux-profile: \|^mux-ctl: ' "$out/$name.out" | sort | uniq -c | head -n 10
done
cat "$out/checks"
echo "$(grep -c '^ok' "$out/checks") passed, $(grep -c '^FAIL' "$out/checks") failed"
! grep -q '^FAIL' "$out/checks"
