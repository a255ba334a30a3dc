#!/bin/sh
# mux-ctl run: it preloads the shim and keeps the program's exit code; says when the program runs unshared; and looks at the
# program.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"

# mux-ctl: run preloads the shim and keeps the program's exit code; status and its exit codes; version.
part command
"$ctl" status > "$dir/down.out" 2>&1
[ $? = 3 ] || fail "status without a daemon does not end with 3"
start_daemon
spawn run "$ctl" run -- "$(worker linked)" --bytes 96M --iterations 8 --seconds 4
is_known() {
    is_up && [ "$(apps)" = 1 ] && "$ctl" status > "$dir/table.out" && grep -q gm_worker "$dir/table.out"
}
within "$patience" is_known || fail "mux-ctl run: the program is not known to the daemon, or not named by the table"
expect_pass run
spawn run "$ctl" run -- "$(worker linked)" --mode none-such
await run
[ "$code" = 2 ] || fail "mux-ctl run ended with $code, the program with 2"
"$ctl" version > "$dir/version.out" || fail "version failed"
expect_empty
stop_daemon
came=$(grep -c 'app [0-9]*: pid' "$dir/daemon.out")
left=$(grep -c 'left$' "$dir/daemon.out")
[ "$came" -gt 0 ] && [ "$left" = "$came" ] || fail "$came programs came, and the log says $left times that one left"

# mux-ctl run says so when the program runs unshared: without a daemon, at a wrong socket, beyond the app limit. With --require
# the program is not started then; else a place is kept for it, and for what it starts, until it connects.
part require
# says CODE TEXT ARGUMENT...: `mux-ctl run ARGUMENT...` ends with CODE and one line that holds TEXT.
says() {
    says_code=$1 says_text=$2
    shift 2
    timeout "$patience" "$ctl" run "$@" > "$dir/stdout" 2> "$dir/stderr"
    code=$?
    [ "$code" = "$says_code" ] || fail "run $*: ended with $code, not $says_code: $(cat "$dir/stderr")"
    [ "$(wc -l < "$dir/stderr")" = 1 ] || fail "run $*: not one line: $(cat "$dir/stderr")"
    grep -qF -- "$says_text" "$dir/stderr" || fail "run $*: does not say \"$says_text\": $(cat "$dir/stderr")"
    say "$(cat "$dir/stderr")"
}

# expect_number KEY N: of the last status.
expect_number() {
    take_status
    [ "$(json_after "$1" "$2" "$dir/status.json")" = "$3" ] ||
        fail "$1 $2 is $(json_after "$1" "$2" "$dir/status.json"), not $3"
}

has_no_apps() {
    is_up && [ "$(apps)" = 0 ]
}

# expect_reserved N
expect_reserved() {
    take_status
    grep -q "\"reserved\":$1[,}]" "$dir/status.json" || fail "not $1 reserved: $(grep -o '"reserved":[^,]*' "$dir/status.json")"
}

# without a daemon, and with a socket that is none
says 7 "sh runs unshared: gpumuxd is not running ($GPUMUX_SOCKET: No such file" -- sh -c 'exit 7'
says 125 "x.sh is not started, as it would run unshared: gpumuxd is not running" --require -- sh x.sh
[ ! -s "$dir/stdout" ] || fail "--require started the program"
touch "$dir/file"
GPUMUX_SOCKET=$dir/file says 0 "runs unshared: " -- true
GPUMUX_SOCKET=$dir/file says 125 "true is not started" --require -- true
GPUMUX_SOCKET=$dir/missing/socket says 125 "true is not started" --require -- true
says 1 "unknown option --requires" --requires -- true
says 1 "which program?" --require
says 127 "No such file" --require -- "$dir/none"

# up to the app limit
start_daemon --max-apps 1
GPUMUX_DISABLE=1 says 125 "GPUMUX_DISABLE=1" --require -- true
timeout "$patience" "$ctl" run --require -- sh -c 'exit 7' > "$dir/stdout" 2> "$dir/stderr"
code=$?
[ "$code" = 7 ] && [ ! -s "$dir/stderr" ] || fail "with a place: ended with $code: $(cat "$dir/stderr")"
code=0
(unset GPUMUX_SOCKET && timeout "$patience" "$ctl" run --require --socket="$dir/gpumux.sock" -- sh -c 'exit 7') ||
    code=$?
[ "$code" = 7 ] || fail "with --socket behind run: ended with $code"
expect_reserved 0 # the program ended and never connected
expect_number refused count 0

# A place is kept for the program while it has not connected: nobody else gets it. What it starts does.
cat > "$dir/later.sh" << END_OF_SCRIPT
touch "$dir/started"
until [ -e "$dir/go" ]; do sleep 0.05; done
"$(worker linked)" --bytes 20M --iterations 2 --ready "$dir/later.ready" --go "$dir/finish"
END_OF_SCRIPT
spawn later "$ctl" run --require -- sh "$dir/later.sh"
is_started() {
    [ -e "$dir/started" ] || has_ended later
}
within "$patience" is_started
expect_reserved 1
says 125 "true is not started, as it would run unshared: 0 programs are served already and 1 places are reserved" --require -- true
expect_number refused count 1
says 0 "true runs unshared, unless there is room at its first CUDA call: 0 programs are served already and 1 places are reserved" -- true
expect_number refused count 1 # it would ask again itself
app early linked --bytes 20M --iterations 2
expect_pass early
expect_number refused count 2
touch "$dir/go"
await_ready later
expect_reserved 0
[ "$(apps)" = 1 ] || fail "the place was not kept: $(apps) apps"

# beyond it
says 125 "1 programs are served already: raise --max-apps" --require -- true
expect_number refused count 3
says 0 "true runs unshared, unless there is room at its first CUDA call: 1 programs are served already: raise --max-apps" -- true
app surplus linked --bytes 20M --iterations 2
expect_pass surplus
expect_number refused count 4
expect_number refused pid "$(pid_of surplus)"
grep -q '"name":"gm_worker","why":"1 programs are served already: raise --max-apps"' "$dir/status.json" || fail "no reason in the status"
"$ctl" status > "$dir/table.out" || fail "status failed"
tr '\n' ' ' < "$dir/table.out" | grep -q "4 programs refused since the start, the last .* ago: gm_worker (pid $(pid_of surplus), " ||
    fail "the table does not say who was refused: $(cat "$dir/table.out")"
touch "$dir/finish"
await later
case $code,$line in
"0,PASS "*) ;;
*) fail "later: code $code: $line" ;;
esac
within "$patience" has_no_apps || fail "an app is left"
spawn served "$ctl" run --require -- "$(worker linked)" --bytes 20M --iterations 2
expect_pass served
expect_reserved 0
expect_number refused count 4
expect_empty
stop_daemon

# mux-ctl run looks at the program: what cannot load the shim is not started with --require, and else runs unshared after one
# line. Places are reserved at once, so of three programs that start together on two places the third one hears of it. Libraries
# of the user in LD_PRELOAD come first.
part programs
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
