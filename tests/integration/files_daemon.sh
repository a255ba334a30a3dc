#!/bin/sh
# Forty programs, and the daemon may have 200 open files: mux-ctl is always answered, who cannot be served is told why
# and runs without gpumux, and those that are served take turns with the frames that there can be.
. "$(dirname "$0")/lib.sh"
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
    app "app$i" linked --bytes 6M --allocs 3 --iterations 3 --until "$dir/enough" --seed "$i"
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
