#!/bin/sh
# mux-ctl run looks at the program: what cannot load the shim is not started with --require, and else runs unshared after
# one line. Places are reserved at once, so of three programs that start together on two places the third one hears of it.
# Libraries of the user in LD_PRELOAD come first.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"
static=$BUILD/tests/programs/gm_started_static
alien=$BUILD/tests/programs/gm_started_alien

# run CODE ARGUMENT...: `mux-ctl run ARGUMENT...` ends with CODE.
run() {
    run_code=$1
    shift
    timeout "$patience" "$ctl" run "$@" > "$dir/stdout" 2> "$dir/stderr"
    code=$?
    [ "$code" = "$run_code" ] || fail "run $*: ended with $code, not $run_code: $(cat "$dir/stderr")"
}

# says TEXT: the last one wrote one line on standard error, which holds TEXT.
says() {
    [ "$(wc -l < "$dir/stderr")" = 1 ] || fail "not one line: $(cat "$dir/stderr")"
    grep -qF -- "$1" "$dir/stderr" || fail "does not say \"$1\": $(cat "$dir/stderr")"
    say "$(cat "$dir/stderr")"
}

says_nothing() {
    [ ! -s "$dir/stderr" ] || fail "says $(cat "$dir/stderr")"
}

# refuses TEXT ARGUMENT...: with --require it is not started, and TEXT says why.
refuses() {
    refuses_text=$1
    shift
    run 125 --require -- "$@"
    [ ! -s "$dir/stdout" ] || fail "$* was started"
    says "is not started, as it would run unshared: $refuses_text"
}

start_daemon
run 7 -- "$static"
says "gm_started_static runs unshared: gm_started_static is a static program"
grep -q 'preload=.*libgpumux' "$dir/stdout" || fail "what a static program starts does not get the shim"
refuses "gm_started_static is a static program" "$static"
refuses "gm_started_alien uses another C library, by ld-alien.so.1" "$alien"
run 7 -- "$alien"
says "gm_started_alien runs unshared: gm_started_alien uses another C library"
grep -qx 'preload=' "$dir/stdout" || fail "the shim would end a program of another C library: $(cat "$dir/stdout")"

# Scripts and env, to the end.
printf '#!%s\n' "$static" > "$dir/static.sh"
printf '#! %s  one two \n' "$dir/static.sh" > "$dir/nested.sh"
printf '#!/usr/bin/env -S -u LD_PRELOAD sh\nexit 7\n' > "$dir/split.sh"
printf 'exit 7\n' > "$dir/plain.sh"
printf '#!/usr/bin/env sh\nexit 7\n' > "$dir/good.sh"
chmod +x "$dir"/*.sh
refuses "gm_started_static is a static program" "$dir/static.sh"
refuses "gm_started_static is a static program" "$dir/nested.sh"
refuses "gm_started_static is a static program" env "A=1" "PATH=$BUILD/tests/programs" gm_started_static
refuses "sh is started by env without LD_PRELOAD" "$dir/split.sh"
for way in "-i" "-" "-iu A" "-u LD_PRELOAD" "-uLD_PRELOAD" "--unset=LD_PRELOAD" "--ignore-env" "-C / -i" "LD_PRELOAD=" \
    "-S-i"; do
    refuses "sh is started by env without LD_PRELOAD" env $way sh -c 'exit 7'
done
many=$(seq 2000 | sed 's/.*/A=&/')
run 7 --require -- env $(echo "$many" | head -n 100) sh -c 'exit 7'
refuses "env has too many words to look at" env $many sh -c 'exit 7'
run 7 -- env $many sh -c 'exit 7'
says_nothing
run 7 -- env -i sh -c 'exit 7'
says "env runs unshared: sh is started by env without LD_PRELOAD"
for way in "A=1" "-u A" "--" "-i LD_PRELOAD=$shim"; do
    run 7 --require -- env $way sh -c 'exit 7'
    says_nothing
done
run 7 --require -- "$dir/good.sh"
says_nothing
run 7 --require -- "$dir/plain.sh" # without a first line: the shell's
says_nothing
run 7 --require -- /lib64/ld-linux-x86-64.so.2 /bin/sh -c 'exit 7'
says_nothing

# Another kind of machine; more rights than the user has; a file that the user may not read.
cp /bin/true "$dir/other"
printf '\001' | dd of="$dir/other" bs=1 seek=4 conv=notrunc 2> /dev/null
refuses "other is built for another kind of machine" "$dir/other"
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null && chmod 755 "$dir" &&
    setpriv --reuid 65534 --clear-groups -- "$ctl" status > /dev/null 2>&1; then
    cp /bin/true "$dir/rights"
    chmod 4755 "$dir/rights"
    run 0 --require -- "$dir/rights" # root's own
    chown 65534 "$dir/rights"
    chmod 4755 "$dir/rights"
    setpriv --reuid 65534 --clear-groups -- "$ctl" run --require -- "$dir/rights" || fail "the user's own is refused"
    if ! grep -q " $(df --output=target "$dir" | tail -n 1) .*nosuid" /proc/mounts; then
        refuses "rights is setuid" "$dir/rights"
        chown 0:65534 "$dir/rights" && chmod 2755 "$dir/rights"
        refuses "rights is setgid" "$dir/rights"
    fi
    chown 0:0 "$dir/rights" && chmod 711 "$dir/rights"
    setpriv --reuid 65534 --clear-groups -- "$ctl" run --require -- "$dir/rights" > "$dir/stdout" 2> "$dir/stderr"
    [ $? = 125 ] || fail "an unreadable file is started with --require"
    says "rights cannot be looked at: Permission denied"
    setpriv --reuid 65534 --clear-groups -- "$ctl" run -- "$dir/rights" 2> "$dir/stderr" || fail "it does not run"
    says_nothing
fi

# The order in LD_PRELOAD: other libraries, and sanitizers, first.
run 0 --require -- sh -c 'echo "$LD_PRELOAD"'
[ "$(cat "$dir/stdout")" = "$(realpath "$shim")" ] || fail "LD_PRELOAD is $(cat "$dir/stdout")"
tried=
for library in libasan.so.8 libtsan.so.2 libjemalloc.so.2 libtcmalloc_minimal.so.4; do
    LD_PRELOAD=$library sh -c : 2> "$dir/there" && [ ! -s "$dir/there" ] || continue
    LD_PRELOAD=$library ASAN_OPTIONS=detect_leaks=0 run 0 --require -- "$(worker linked)" --bytes 20M --iterations 2
    says_nothing
    grep -q '^PASS .* mismatches=0 ' "$dir/stdout" || fail "with $library: $(cat "$dir/stdout")"
    tried="$tried $library"
done
say "tried with$tried"
if echo 'int main(void) { return 7; }' | gcc -fsanitize=address -x c - -o "$dir/checked" 2> /dev/null &&
    ASAN_OPTIONS=detect_leaks=0 "$dir/checked" > /dev/null 2>&1; [ $? = 7 ]; then
    ASAN_OPTIONS=detect_leaks=0 run 7 --require -- "$dir/checked"
    says_nothing
fi
run 0 -- sh -c 'echo "$ASAN_OPTIONS"'
grep -qx verify_asan_link_order=0 "$dir/stdout" || fail "ASAN_OPTIONS is $(cat "$dir/stdout")"
# What the environment asks for in vain.
GPUMUX_CLASS=fast run 0 -- true
says "GPUMUX_CLASS is not auto, latency, interactive or batch: true runs without it"
GPUMUX_CAP=lots run 0 -- true
says "is no size of 2M or more: true runs without it"
GPUMUX_OVERSIZE=yes run 0 --require -- true
says "GPUMUX_OVERSIZE is not refuse or host: true runs without it"
stop_daemon

# Three at once on two places.
start_daemon --max-apps 2
for i in 1 2 3; do
    spawn "at_once$i" "$ctl" run -- "$(worker linked)" --bytes 20M --iterations 2 --ready "$dir/at_once$i.ready" --go "$dir/go"
done
for i in 1 2 3; do await_ready "at_once$i"; done
touch "$dir/go"
expect_pass at_once1 at_once2 at_once3
[ "$(cat "$dir"/at_once?.out | grep -c '^mux-ctl: gm_worker runs unshared, unless there is room at its first CUDA call: ')" = 1 ] ||
    fail "not one of three heard of it: $(cat "$dir"/at_once?.out)"
expect_empty
stop_daemon
