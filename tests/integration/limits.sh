#!/bin/sh
# Caps, sizes and totals at their limits, in every way to say them: messages and shared words of a client of our own
# (tests/programs/limits.c), the environment, mux-ctl set, rules, options. The daemon goes on, and serves a program right.
. "$(dirname "$0")/lib.sh"
limits=$BUILD/tests/programs/gm_limits
mkdir "$dir/disk"

# begin OPTION...: the daemon. Fails if it does not start, which must be for a reason that it tells.
begin() {
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --slice 50ms --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer: $*"
    has_ended daemon || return 0
    await daemon
    [ "$code" = 1 ] || fail "the daemon ended with $code: $*"
    return 1
}

# hold_out WHAT: clients say all there is to say; then the daemon is as it was.
hold_out() {
    spawn limits "$limits" 167772159 167772160 167772161
    await limits
    [ "$code" = 0 ] || fail "$1: $line"
    check_daemon
    expect_empty
    say "$1: $line"
    stop_daemon
}

# --- messages, the environment, mux-ctl ---

begin --gpu-budget 160M --pinned 512M || fail "the daemon did not start"
app steady linked --bytes 24M --allocs 3 --iterations 3 --until "$dir/enough"
await_ready steady
caps="0 1 2097151 2M 2097153 100000k 160M 160.0001M 9223372036854775807 18446744073709551615 none"
sizes="1 33554433 18446744073709551615"
[ "${GM_LINKED:-}" != 1 ] || { caps="2097151 160M 18446744073709551615"; sizes=33554433; } # a sanitizer is slow
for cap in $caps; do
    for setting in cap=$cap weight=$cap share=$cap% "cap=2M weight=0.001 share=0.1%"; do
        "$ctl" set "$(pid_of steady)" $setting > "$dir/set" 2>&1
        [ $? -le 2 ] || fail "mux-ctl set $setting: $(cat "$dir/set")"
    done
    for variable in GPUMUX_CAP CUDA_DEVICE_MEMORY_LIMIT GPU_MEMORY_LIMIT; do
        eval "$variable=\$cap; export $variable"
        app "$variable" linked --bytes 4M --allocs 2 --iterations 3
        unset "$variable"
    done
    for variable in GPUMUX_CAP CUDA_DEVICE_MEMORY_LIMIT GPU_MEMORY_LIMIT; do
        await "$variable"
        case $variable,$code,$line in # by another system's variable it gets no more
        *,0,"PASS "*" mismatches=0 "*) ;;
        C*,3,*" mismatches=0 "*OUT_OF_MEMORY | GPU_*,3,*" mismatches=0 "*OUT_OF_MEMORY) ;;
        *) fail "$variable=$cap: code $code: $line" ;;
        esac
    done
    check_daemon
done
"$ctl" set "$(pid_of steady)" cap=none weight=1 share=100% > "$dir/set" || fail "$(cat "$dir/set")"
touch "$dir/enough"
expect_pass steady
hold_out "messages"

# --- rules ---

for size in 2M 9223372036854775807; do
    begin --gpu-budget 160M --pinned 288M --paged 64M --cap-bends --when-full wait --rule "command=limits cap=$size" \
        --rule "command=* user-gpu=$size user-pinned=$size" || fail "no rule may say $size"
    hold_out "rules of $size"
done

# --- options ---

for size in $sizes; do
    for option in "--pinned 512M --gpu-budget" "--gpu-budget 160M --pinned" "--gpu-budget 160M --pinned 288M --paged" \
        "--gpu-budget 160M --oversize host --pinned 288M --disk $dir/disk:"; do
        case $option in
        *:) set -- $option$size ;;
        *) set -- $option $size ;;
        esac
        begin "$@" || continue
        hold_out "$*"
    done
done
