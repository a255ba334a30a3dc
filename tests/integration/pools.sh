#!/bin/sh
# What memory pools promise, one by one, with and without gpumux: the same answers, and memory that is given back.
. "$(dirname "$0")/lib.sh"
native bare linked --mode pools --iterations 2 --only \
    first,errors,order,inherited,quiet,numbers,giving-back,objects,contexts,foreign,kinds,races,capture,many
expect_pass bare
start_daemon
app alone linked --mode pools --iterations 2
expect_pass alone
# with a threshold above it the pool holds what was freed
kept=$(sed -n 's/^kept=\([0-9]*\) .*/\1/p' "$dir/alone.out" | head -n 1)
[ "${kept:-0}" -ge $((8 << 20)) ] || fail "the pool kept ${kept:-nothing}"
# two pieces of 6 MiB: as much is reserved as by the driver
two=$(sed -n 's/^two=//p' "$dir/bare.out" | sort -u)
[ "$two" = "$(sed -n 's/^two=//p' "$dir/alone.out" | sort -u)" ] || fail "two pieces reserve $two natively: $(cat "$dir/alone.out")"
app proc proc --mode pools --iterations 2
expect_pass proc
# beside another that takes the GPU from it
app pools dlsym --mode pools --iterations 4
app other linked --bytes 128M --allocs 3 --iterations 8 --seed 2
expect_pass pools other
# and by a driver that is asked nothing beside a capture but what is known to be allowed
export SIMCUDA_UNSAFE=cuStreamGetCtx,cuStreamGetId,cuDeviceGetDefaultMemPool,cuDevicePrimaryCtxGetState
for way in linked proc; do
    app "strict-$way" "$way" --mode beside --iterations 4
    expect_pass "strict-$way"
done
unset SIMCUDA_UNSAFE
# with a second device, which may have access: the driver serves such pools
export SIMCUDA_DEVICES=2
app peers linked --mode pools --iterations 2
expect_pass peers
expect_empty
stop_daemon
