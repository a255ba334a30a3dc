# What the integration tests share; sourced by each. A test is a POSIX shell script that runs the real daemon and
# real programs over simcuda in a folder of its own and ends with code 0, with 77 (skipped, after a line
# "skipped: why"), or anything else.
#
#   BUILD       the build folder (environment, or the first argument)
#   GM_LINKED   1: the sanitizer builds; programs carry the shim inside instead of preloading it
#   GM_SHRINK   divide what programs take, and the budget, by this (the thread sanitizer is slow); 1
#
# Sizes: the device has 1 GiB, the budget is 160 MiB unless a test says otherwise. Processes started here are
# killed when the test ends, however it ends.
set -u

BUILD=${BUILD:-${1:?usage: TEST.sh BUILD-DIR}}
BUILD=$(cd "$BUILD" && pwd) || exit 2
name=$(basename "$0" .sh)
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-$name.XXXXXX") || exit 2
mkdir "$dir/sim" || exit 2
mkdir -m 755 "$dir/run" || exit 2 # a daemon's claim on its GPU is not left in /run

# SYS is what programs run with; the shim is preloaded into them alone.
unset GPUMUX_LOG LD_PRELOAD
export SIMCUDA_DIR="$dir/sim" SIMCUDA_MEMORY="${SIMCUDA_MEMORY:-1G}"
export GPUMUX_SOCKET="$dir/gpumux.sock" GPUMUX_RUN_DIR="$dir/run" XDG_RUNTIME_DIR="$dir/run"
export LD_LIBRARY_PATH="$BUILD/tests/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
ctl=$BUILD/daemon/mux-ctl
shim=$BUILD/shim/libgpumux.so
shrink=${GM_SHRINK:-1}
part_n=0 # parts that have begun
patience=300 # seconds for what happens soon, or ends; generous: sanitizers are slow, machines are busy

say() {
    echo "$name: $*"
}

# part NAME: what follows stands by itself. Its name is before all that is said from here on, and no file is left of programs that
# have ended, nor one that they waited for (enough, go). With PARTS in the environment the test ends after so many.
part() {
    [ -z "${PARTS:-}" ] || [ "$part_n" -lt "$PARTS" ] || exit 0
    part_n=$((part_n + 1))
    name="$(basename "$0" .sh), $1"
    for part_file in "$dir"/*.code; do
        [ ! -f "$part_file" ] || rm -f "${part_file%.code}".*
    done
    rm -f "$dir/enough" "$dir"/go*
}

evidence() {
    [ -f "$dir/daemon.pid" ] && ! has_ended daemon && is_up # as it is now
    for log in "$dir"/*.out "$dir"/*.log; do
        [ -s "$log" ] || continue
        if grep -q 'Sanitizer\|runtime error:' "$log"; then
            echo "--- $(basename "$log"), the sanitizer's first report"
            grep -m 1 -A 60 'Sanitizer\|runtime error:' "$log"
        fi
        echo "--- $(basename "$log"), last lines"
        tail -n 25 "$log"
    done
    [ -s "$dir/status.json" ] && { echo "--- status.json"; cat "$dir/status.json"; echo; }
}

fail() {
    say "FAILED: $*"
    evidence
    exit 1
}

# skip WHY: the rest of the test. If a part has been, the test has passed.
skip() {
    echo "skipped: $*"
    [ "$part_n" = 0 ] || exit 0
    exit 77
}

need_size() {
    [ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
}

# keepers: the processes of gpumux-keeper that daemons of this test have started.
keepers() {
    grep -lszE "^$dir/[^/]*-keeper/[^/]*\$" /proc/[0-9]*/cmdline | sed 's,/proc/\([0-9]*\)/.*,\1,'
}

# without_keeper: the daemon at $GPUMUX_SOCKET finds none, and can start none. So what it has swapped out is lost with it,
# and SIGTERM first gives programs their memory back.
without_keeper() {
    mkdir -m 755 "$GPUMUX_SOCKET-keeper" # a keeper does not start where others may come
}

cleanup() {
    code=$?
    trap - EXIT INT TERM HUP
    for file in "$dir"/*.pid; do
        [ -f "$file" ] && [ ! -f "${file%.pid}.code" ] && kill -KILL "$(cat "$file")" 2> /dev/null
    done
    for pid in $(keepers); do kill -KILL "$pid" 2> /dev/null; done
    wait
    # simcuda leaves nothing else behind
    rm -rf "$dir"
    exit "$code"
}
trap cleanup EXIT
trap 'say "stopped: took too long"; evidence; exit 1' INT TERM HUP

# A size in MiB, shrunk.
shrunk() {
    echo "$((${1%M} * 1024 / shrink))K"
}

# spawn NAME COMMAND...: in the background, with the sizes in MiB behind --bytes and --gpu-budget shrunk; its pid
# in $dir/NAME.pid, output in NAME.out, exit code in NAME.code once it has ended (128 + signal if it was killed).
spawn() {
    spawn_name=$1
    shift
    spawn_left=$#
    spawn_option=
    while [ "$spawn_left" -gt 0 ]; do
        case $spawn_option,$1 in
        --bytes,*M | --gpu-budget,*M) set -- "$@" "$(shrunk "$1")" ;;
        *) set -- "$@" "$1" ;;
        esac
        spawn_option=$1
        shift
        spawn_left=$((spawn_left - 1))
    done
    rm -f "$dir/$spawn_name.pid" "$dir/$spawn_name.code" "$dir/$spawn_name.ready"
    (
        trap - EXIT INT TERM HUP
        "$@" > "$dir/$spawn_name.out" 2>&1 &
        echo $! > "$dir/$spawn_name.pid.new"
        mv "$dir/$spawn_name.pid.new" "$dir/$spawn_name.pid"
        wait $! 2> /dev/null
        echo $? > "$dir/$spawn_name.code.new"
        mv "$dir/$spawn_name.code.new" "$dir/$spawn_name.code"
    ) 2> /dev/null &
    until [ -f "$dir/$spawn_name.pid" ]; do sleep 0.02; done
}

pid_of() {
    cat "$dir/$1.pid"
}

has_ended() {
    [ -f "$dir/$1.code" ]
}

stands_still() {
    grep -h '^State:' "/proc/$(pid_of "$1")/task/"*/status 2> /dev/null > "$dir/threads"
    [ -s "$dir/threads" ] && ! grep -qv '[[:space:]]T' "$dir/threads"
}

# stop NAME: SIGSTOP, and all of its threads have stopped.
stop() {
    kill -STOP "$(pid_of "$1")"
    within "$patience" stands_still "$1" || fail "$1 does not stop"
}

# within SECONDS COMMAND...: until it succeeds; non-zero when time is up. The time that COMMAND takes is not counted, so a
# slow machine has longer: up to four times as long, as ctest ends a test that says nothing.
within() {
    within_left=$(($1 * 20))
    within_ends=$(($(date +%s) + 4 * $1))
    shift
    until "$@"; do
        within_left=$((within_left - 1))
        [ "$within_left" -gt 0 ] && [ "$(date +%s)" -le "$within_ends" ] || return 1
        sleep 0.05
    done
}

# await NAME: wait for its end; $code and $line (its last line of output).
await() {
    within "$patience" has_ended "$1" || fail "$1 did not end within $patience s"
    code=$(cat "$dir/$1.code")
    line=$(tail -n 1 "$dir/$1.out")
}

# --- the daemon ---

is_up() {
    "$ctl" status --json > "$dir/status.json.new" 2> /dev/null && mv "$dir/status.json.new" "$dir/status.json"
}

# start_daemon [OPTION...]: with a budget of 160 MiB, 512 MiB pinned and short turns, or as told.
start_daemon() {
    start_default --slice 50ms "$@"
}

# start_default [OPTION...]: the same with turns of the daemon's own choice.
start_default() {
    spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
}

daemon_is_up_or_dead() {
    is_up || has_ended daemon
}

# Ends the daemon as a service manager does; it must end well.
stop_daemon() {
    kill -TERM "$(pid_of daemon)"
    await daemon
    [ "$code" = 0 ] || fail "the daemon ended with $code"
}

check_daemon() {
    ! has_ended daemon || fail "the daemon ended with $(cat "$dir/daemon.code")"
    is_up || fail "the daemon does not answer"
}

# --- programs ---

# worker WAY: path of gm_worker that reaches the driver in this WAY (linked, dlsym, proc), with or without the
# shim inside.
worker() {
    worker_file=gm_worker
    [ "$1" = linked ] || worker_file=gm_worker_$1
    [ -z "${2:-}" ] || worker_file=${worker_file}_linked
    echo "$BUILD/tests/programs/$worker_file"
}

# start_daemon_on_faulty_disk ARGUMENT...: on a disk that fails as the head of programs/faulty_disk.c says; it is full
# while $dir/full is there.
start_daemon_on_faulty_disk() {
    mkdir -p "$dir/disk"
    export GM_FAULTY_DISK="$dir/full"
    spawn daemon env LD_PRELOAD="$BUILD/tests/programs/libgm_faulty_disk.so" "$BUILD/daemon/gpumuxd" \
        --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 288M --disk "$dir/disk:512M" \
        --slice 50ms --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
}

# uses_disk [BYTES]: the disk tier holds more than that.
uses_disk() {
    is_up && [ "$(gpu_tier disk_used_bytes)" -gt "${1:-0}" ]
}

# Status says of somebody that a lower tier fails.
is_told_of_disk() {
    is_up && grep -q 'a lower tier fails' "$dir/status.json"
}

# app NAME WAY ARGUMENT...: start gm_worker under gpumux.
app() {
    app_name=$1
    app_way=$2
    shift 2
    rm -f "$dir/$app_name.ready" # another of that name may have been before
    if [ "${GM_LINKED:-}" = 1 ]; then
        spawn "$app_name" "$(worker "$app_way" inside)" --ready "$dir/$app_name.ready" "$@"
    else
        spawn "$app_name" env LD_PRELOAD="$shim" "$(worker "$app_way")" --ready "$dir/$app_name.ready" "$@"
    fi
}

# native NAME WAY ARGUMENT...: the same without gpumux.
native() {
    native_name=$1
    native_way=$2
    shift 2
    rm -f "$dir/$native_name.ready"
    spawn "$native_name" "$(worker "$native_way")" --ready "$dir/$native_name.ready" "$@"
}

is_ready() {
    [ -f "$dir/$1.ready" ] || has_ended "$1"
}

# await_ready NAME: its memory is filled.
await_ready() {
    within "$patience" is_ready "$1" || fail "$1 did not get ready"
    [ -f "$dir/$1.ready" ] || fail "$1 ended before it was ready: $(tail -n 1 "$dir/$1.out")"
}

# expect_pass NAME...: each must end with PASS and no mismatch.
expect_pass() {
    for pass_name; do
        await "$pass_name"
        case $code,$line in
        "0,PASS "*" mismatches=0 "*) say "$pass_name: $line" ;;
        *) fail "$pass_name: code $code: $line" ;;
        esac
    done
}

# orphan NAME WAY ARGUMENT...: an app whose daemon will be killed; its shim's log in $dir/NAME.log.
orphan() {
    GPUMUX_LOG="$dir/$1.log"
    export GPUMUX_LOG
    app "$@"
    unset GPUMUX_LOG
}

# kill_daemon_at SWITCHES: kill it as soon as there were so many, and let programs that were started with --until
# "$dir/enough" end. So they are there when it goes, however slow the machine is.
kill_daemon_at() {
    within "$patience" has_switched "$1" || fail "only $(gpu switches) switches, $1 expected"
    kill -KILL "$(pid_of daemon)"
    touch "$dir/enough"
}

# is_lost: the end that await told is that of a program whose memory is lost with its daemon: the one error of the page.
# Nothing that it looked at was wrong.
is_lost() {
    case $code,$line in
    "3,FAIL "*" mismatches=0 "*": error 46 CUDA_ERROR_DEVICE_UNAVAILABLE") ;;
    *) return 1 ;;
    esac
}

# expect_orphans NAME...: each ends well, or is lost; if its shim found all of its memory there, it ends well.
expect_orphans() {
    for orphan_name; do
        await "$orphan_name"
        case $code,$line in
        "0,PASS "*" mismatches=0 "*) ;;
        *)
            is_lost || fail "$orphan_name ended with $code: $line"
            [ "$(grep -c 'the daemon is lost: swapped-out memory is gone' "$dir/$orphan_name.log")" = 1 ] ||
                fail "$orphan_name had all of its memory and ended with $code: $line"
            ;;
        esac
        say "$orphan_name: $line"
        rm -f "$dir/$orphan_name.log"
    done
}

# --- another user ---

# need_stranger: from here on $stranger COMMAND runs as another user; skips the test where that cannot be.
need_stranger() {
    [ "$(id -u)" = 0 ] || skip "only root can be another user as well"
    command -v setpriv > /dev/null || skip "there is no setpriv"
    stranger="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chmod 1777 "$dir" "$dir/sim"
    $stranger test -x "$(worker linked)" || skip "another user may not run what is built here"
    # Whether he can use the simulated GPU at all; what he cannot do under gpumux is a failure.
    spawn bare $stranger env LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$(worker linked)" --bytes 24M --allocs 1 --iterations 2
    await bare
    case $code,$line in
    "0,PASS "*) ;;
    *) skip "another user cannot use the simulated GPU here: $line" ;;
    esac
}

# stranger_app NAME ARGUMENT...: gm_worker under gpumux, as that user
stranger_app() {
    stranger_name=$1
    shift
    if [ "${GM_LINKED:-}" = 1 ]; then
        spawn "$stranger_name" $stranger "$(worker linked inside)" --ready "$dir/$stranger_name.ready" "$@"
    else
        spawn "$stranger_name" $stranger env LD_LIBRARY_PATH="$LD_LIBRARY_PATH" LD_PRELOAD="$shim" \
            "$(worker linked)" --ready "$dir/$stranger_name.ready" "$@"
    fi
}

# --- status ---

# json_after KEYWORD KEY FILE: the first number called KEY after the text KEYWORD.
json_after() {
    tr -d ' \n\t' < "$3" | sed "s/.*\"$1\"://" | grep -o "\"$2\":-\{0,1\}[0-9.e+]*" | head -n 1 | cut -d: -f2
}

# gpu KEY: a number of the first GPU, from the last status taken; take_status takes one.
gpu() {
    json_after gpus "$1" "$dir/status.json"
}

take_status() {
    is_up || fail "mux-ctl status failed"
}

# apps: how many the daemon knows.
apps() {
    tr -d ' \n\t' < "$dir/status.json" | sed 's/.*"apps":\[//; s/"totals".*//' | grep -o '"pid":' | wc -l
}

# app_of PID: the app's part of the status, without blanks.
app_of() {
    tr -d ' \n\t' < "$dir/status.json" | sed 's/.*"apps"://' | tr '{' '\n' | grep "\"pid\":$1[,}]"
}

# app_has PID TEXT: the app's part of the status holds TEXT (a basic regular expression).
app_has() {
    app_of "$1" | grep -q "$2"
}

# has_state NAME STATE: that is what status says of it now.
has_state() {
    is_up && app_has "$(pid_of "$1")" "\"state\":\"$2\""
}

# app_number PID KEY
app_number() {
    app_of "$1" | grep -o "\"$2\":[0-9.e+]*" | head -n 1 | cut -d: -f2
}

is_empty() {
    is_up && [ "$(apps)" -eq 0 ] && [ "$(gpu_tier gpu_bytes)" = 0 ] && [ "$(gpu_tier pinned_used_bytes)" = 0 ]
}

gpu_tier() {
    json_after tiers "$1" "$dir/status.json"
}

# When no program is left, no app may be known and no byte be theirs, on the GPU or in host memory.
expect_empty() {
    within "$patience" is_empty || fail "apps are gone and yet: $(apps) apps, $(gpu_tier gpu_bytes) bytes on the GPU," \
        "$(gpu_tier pinned_used_bytes) in pinned memory"
}

# turns_of NAME: how often the GPU was switched to it. The daemon writes to daemon.out.
turns_of() {
    grep -c "switch [0-9]* to app [0-9]* (pid $(pid_of "$1")," "$dir/daemon.out"
}

# slices NAME=US...: so says the status of the timeslice of each.
slices() {
    is_up || return 1
    for slices_of; do
        [ "$(app_number "$(pid_of "${slices_of%=*}")" timeslice_us)" = "${slices_of#*=}" ] || return 1
    done
}

has_switched() {
    is_up && [ "$(gpu switches)" -ge "$1" ]
}

# await_switches LEAST: then programs that were started with --until "$dir/enough" may end. So they are there at the
# same time, however late one of them came. Before their expect_pass; what is missing, expect_switches says after it.
await_switches() {
    within "$patience" has_switched "$1"
    touch "$dir/enough"
}

# expect_turns LEAST NAME...: so many more switches, and then each ends well, and nothing is left. At least two of them, which
# do not fit together, were started with --until "$dir/enough".
expect_turns() {
    take_status
    turns_least=$(($(gpu switches) + $1))
    shift
    await_switches "$turns_least"
    expect_pass "$@"
    expect_switches "$turns_least"
    expect_empty
}

# expect_switches LEAST
expect_switches() {
    take_status
    switches=$(gpu switches)
    say "switches=$switches bytes_in=$(gpu bytes_in) bytes_out=$(gpu bytes_out)"
    [ "${switches:-0}" -ge "$1" ] || fail "only ${switches:-no} switches, $1 expected"
}
