#!/bin/sh
# Other libraries between the program and the driver: preloaded before and behind the shim, one that patches the driver
# in place, libraries opened with RTLD_DEEPBIND and in a namespace of their own.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "programs of this build have the shim inside and preload nothing"
programs=$BUILD/tests/programs
GM_INTERPOSER="$dir/interposer"
export GM_INTERPOSER

# app_with NAME PRELOAD WAY ARGUMENT...
app_with() {
    with_name=$1 with_preload=$2 with_way=$3
    shift 3
    spawn "$with_name" env LD_PRELOAD="$with_preload" "$(worker "$with_way")" --ready "$dir/$with_name.ready" "$@"
}

# counted KEY: the sum over what the interposers wrote; the file is gone then.
counted() {
    cat "$dir/interposer" 2> /dev/null | tr ' ' '\n' | sed -n "s/^$1=//p" | awk '{ n += $1 } END { printf "%.0f\n", n }'
}

# is_managed NAME: the daemon knows of its memory. NAME waits for $dir/go meanwhile.
is_managed() {
    is_up || return 1
    managed=$(app_number "$(pid_of "$1")" total_bytes)
    [ "${managed:-0}" -ge $((32 * 1024 / shrink * 1024)) ]
}

start_daemon --gpu-budget 80M
for order in before behind; do
    case $order in
    before) preload="$programs/libgm_interposer.so:$shim" ;;
    behind) preload="$shim:$programs/libgm_interposer.so" ;;
    esac
    for way in linked dlsym; do
        rm -f "$dir/go"
        app_with "$order-$way" "$preload" "$way" --bytes 48M --iterations 5 --seed 1 --go "$dir/go"
        app_with "$order-$way-2" "$preload" "$way" --bytes 48M --iterations 5 --seed 2
        await_ready "$order-$way"
        within "$patience" is_managed "$order-$way" || fail "$order-$way: the daemon does not know of its memory"
        touch "$dir/go"
        expect_pass "$order-$way" "$order-$way-2"
        say "$order, $way: it saw $(counted allocs) allocations and $(counted launches) launches"
        case $order,$way in
        before,linked)
            [ "$(counted launches)" -gt 0 ] && [ "$(counted allocs)" -gt 0 ] || fail "it saw nothing"
            ;;
        esac
        [ "$(counted asked)" -gt 0 ] || fail "$order-$way: it saw no ioctl of the driver"
        rm -f "$dir/interposer"
    done
done
for preload in "$programs/libgm_patcher.so:$shim" "$shim:$programs/libgm_patcher.so"; do
    app_with patched "$preload" linked --mode churn --bytes 48M --iterations 20 --seed 3
    app_with patched2 "$preload" dlsym --bytes 48M --iterations 5 --seed 4
    expect_pass patched patched2
    say "the patched function was called $(counted patched) times"
    [ "$(counted patched)" -ne 0 ] || fail "the patch was never reached"
    rm -f "$dir/interposer"
done
expect_switches 5
expect_empty
stop_daemon

start_daemon --gpu-budget 80M
app other linked --bytes 48M --iterations 100000 --seed 9
await_ready other
for way in linked dlsym proc; do
    for mode in deepbind lazybind; do
        rm -f "$dir/go"
        app "$mode-$way" linked --mode $mode --signal "$programs/libgm_library_$way.so" --bytes 48M --iterations 3 \
            --seed 5 --go "$dir/go"
        await_ready "$mode-$way"
        within "$patience" is_managed "$mode-$way" || fail "$mode-$way: its calls passed gpumux by"
        touch "$dir/go"
        expect_pass "$mode-$way"
    done
    app "namespace-$way" linked --mode namespace --signal "$programs/libgm_library_$way.so" --bytes 48M --iterations 3 \
        --seed 6
    expect_pass "namespace-$way"
done
kill -KILL "$(pid_of other)"
await other
expect_switches 5
expect_empty
stop_daemon
