#!/bin/sh
# mux-ctl run says so when the program runs unshared: without a daemon, at a wrong socket, beyond the app limit. With
# --require the program is not started then; else a place is kept for it, and for what it starts, until it connects.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"

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
