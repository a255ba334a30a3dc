#!/bin/sh
# Open files are short, for the daemon or for a program.
. "$(dirname "$0")/lib.sh"

# The daemon's table of open files is large from the start: growing it later, when there are threads, holds everything up for many
# milliseconds, time after time.
part table
room() {
    awk '$1 == "FDSize:" {print $2}' "/proc/$(pid_of daemon)/status"
}
[ -n "$(awk '$1 == "FDSize:"' /proc/self/status)" ] || skip "this system does not tell the size of the table"
limit=$(ulimit -H -n)
[ "$limit" != unlimited ] && [ "$limit" -lt 131072 ] || limit=131072
[ "$limit" -gt 256 ] || skip "so many as are allowed, $limit, are none too many for any process"
start_daemon
now=$(room)
[ -n "$now" ] || skip "this system does not tell the size of the table of that process"
[ "$now" -ge "$limit" ] || fail "room for $now open files, and $limit are allowed"
say "room for $now open files, of $limit that are allowed"
# So is a program's, and it may have its threads' memory ordered (membarrier 8), from before its main() on.
if [ "${GM_LINKED:-0}" != 1 ]; then
    begun() {
        "$@" python3 -c 'import ctypes
print(*[row.split()[1] for row in open("/proc/self/status") if row.startswith("FDSize")], ctypes.CDLL(None).syscall('"$number"', 8, 0, 0))'
    }
    case $(uname -m) in
        x86_64) number=324 ;;
        *) number=283 ;;
    esac
    say "a program: files and order without the shim $(begun env), with it $(begun env LD_PRELOAD="$shim")"
    (ulimit -n 1024 && [ "$(begun env LD_PRELOAD="$shim")" = "1024 0" ]) || fail "a program's start waits for its threads"
    [ "$(begun env LD_PRELOAD="$shim" GPUMUX_DISABLE=1)" = "$(begun env)" ] || fail "the shim is off and did something"
fi
expect_empty
stop_daemon

# Forty programs, and the daemon may have 200 open files: mux-ctl is always answered, who cannot be served is told why and runs
# without gpumux, and those that are served take turns with the frames that there can be.
part "forty programs"
limit=200
most=$(ulimit -H -n)
[ "$most" = unlimited ] || [ "$most" -ge "$limit" ] || skip "the hard limit of open files here is $most"
spawn daemon sh -c 'ulimit -n "$0" && exec "$@"' "$limit" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" \
    --gpu-budget 512M --pinned 256M --slice 50ms --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
! has_ended daemon || fail "the daemon did not start"

asked=0
ask() {
    "$ctl" status --json > "$dir/status.json.new" 2> "$dir/said" || fail "status: $(cat "$dir/said")"
    mv "$dir/status.json.new" "$dir/status.json"
    "$ctl" log > /dev/null 2> "$dir/said" || fail "log: $(cat "$dir/said")"
    asked=$((asked + 1))
}

all=
i=0
while [ "$i" -lt 40 ]; do
    i=$((i + 1))
    app "app$i" linked --bytes 6M --allocs 3 --iterations 3 --pause 30 --until "$dir/enough" --seed "$i"
    all="$all app$i"
    [ $((i % 4)) -ne 0 ] || ask
done
for who in $all; do
    await_ready "$who"
done
for i in 1 2 3 4 5; do
    ask
    "$ctl" set "$(app_of '[0-9]*' | head -n 1 | grep -o '"pid":[0-9]*' | cut -d: -f2)" class=batch > /dev/null \
        2> "$dir/said" || fail "set: $(cat "$dir/said")"
done
files=$(ls "/proc/$(pid_of daemon)/fd" | wc -l)
say "asked $asked times; $(apps) programs are served, the daemon has $files files open"
[ "$(apps)" -ge 10 ] || fail "only $(apps) programs are served"
[ "$(apps)" -lt 40 ] || fail "all are served: the test tests nothing"
grep -q "programs are served already, and $limit open files allow no more: raise LimitNOFILE" "$dir/daemon.out" ||
    grep -q "of $limit open files are in use: raise LimitNOFILE" "$dir/daemon.out" || fail "the log does not say why"
! grep -q 'programs beside gpumux' "$dir/daemon.out" || fail "the log blames others: $(grep -m 1 'beside gpumux' "$dir/daemon.out")"
touch "$dir/enough"
expect_pass $all > "$dir/passed"
say "$(wc -l < "$dir/passed") programs passed"
! grep -q 'dropped' "$dir/daemon.out" || fail "programs lost their connection: $(grep -m 1 dropped "$dir/daemon.out")"
ask
expect_empty
stop_daemon

# A program at its own limit of open files. It notices nothing: the numbers for the daemon's files were taken at its start. Should
# they be of no use, since it lowered its limit below them, its memory comes when it has closed a file: until then the status says
# that it could not be mapped; its connection is not lost.
part "a program"
hard=$(ulimit -H -n)
[ "$hard" = unlimited ] || [ "$hard" -ge 1000 ] || skip "the hard limit of open files here is $hard"
start_daemon --log-level debug
app kept linked --mode files --bytes 96M --iterations 30 --hold 40 --seed 1 --until "$dir/enough"
within "$patience" grep -q 'no number is left' "$dir/kept.out" || fail "it did not take all numbers"
app other linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
await_switches 3
expect_pass kept other
! grep -q 'could not map' "$dir/daemon.out" || fail "it could not map although numbers were kept for that"
expect_switches 3
expect_empty
stop_daemon

start_daemon --log-level debug
GPUMUX_LOG="$dir/hard.log"
export GPUMUX_LOG
rm -f "$dir/enough"
app hard linked --mode nofiles --signal "$dir/hard" --bytes 96M --iterations 30 --hold 40 --seed 1 --until "$dir/enough"
unset GPUMUX_LOG
app other linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
is_short() {
    grep -q 'could not map' "$dir/daemon.out"
}
within "$patience" is_short
touch "$dir/hard.release"
touch "$dir/enough"
expect_pass hard other
! grep -q 'is lost' "$dir/hard.log" || fail "the connection was lost"
say "$(grep refused "$dir/hard.out"); $(grep -c 'could not map' "$dir/daemon.out") batches could not be mapped"
grep -q 'could not map' "$dir/daemon.out" || fail "it was never short of files: the test tests nothing"
grep -q 'limit of open files' "$dir/hard.log" || fail "its log does not say why"
expect_empty
stop_daemon

need_size

# The daemon may open few files, of which each piece of 2 to 32 MiB needs one. What they cannot back is not promised, and refused
# with that reason; programs that fit take turns, and all end.
part pieces
patience=120

# few LIMIT OPTION...: a daemon with that many files.
few() {
    few_limit=$1
    shift
    spawn daemon sh -c 'ulimit -n "$0" && exec "$@"' "$few_limit" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" \
        --gpu-budget 512M --pinned 1G --slice 100ms --idle 50ms "$@"
    within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
    ! has_ended daemon || fail "the daemon did not start"
}

for limit in 64 256; do
    few $limit
    # In pieces of 2 MiB: more than there are files for, so the program is refused before it is stuck.
    app pieces linked --bytes 240M --allocs 120 --iterations 1
    await pieces
    case $code,$line in
    3,*"OUT_OF_MEMORY") ;;
    *) fail "with $limit files: code $code: $line" ;;
    esac
    "$ctl" log --json | grep '"kind":"refused"' | grep '"why":"files"' | grep -q '"raise":"LimitNOFILE or ulimit -n of gpumuxd"' ||
        fail "with $limit files: the log does not say why: $("$ctl" log)"
    within "$patience" is_empty || fail "with $limit files: something is left"
    promised=$(($(gpu available_bytes) >> 20))
    # In large pieces: 240 MiB are nine of them.
    for i in 1 2 3; do
        app "app$i" linked --bytes 240M --allocs 3 --iterations 1 --seed "$i"
    done
    for i in 1 2 3; do
        await_ready "app$i"
    done
    expect_pass app1 app2 app3
    expect_empty
    # What was promised can be had, in one piece.
    app promised linked --bytes "${promised}M" --allocs 1 --iterations 1
    expect_pass promised
    say "with $limit files: $promised MiB are promised"
    stop_daemon
done
[ "$promised" = 512 ] || fail "256 files are enough for all of the GPU"
