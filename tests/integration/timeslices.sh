#!/bin/sh
# Timeslices of the GPU follow classes and weights, as said or as found.
. "$(dirname "$0")/lib.sh"

# While a latency-critical program runs beside others, they have the shortest timeslices of the GPU and it has the longest, as far
# as the driver lets them; otherwise each has its part by weight, and with equal ones the driver's own. Several others with work
# take turns, and one that cannot be held gives all of them somewhat longer timeslices instead.
part said
endless() {
    endless_name=$1
    shift
    app "$endless_name" linked --mode endless --bytes 16M --hold 1 --signal "$dir/$endless_name.steps" \
        --until "$dir/$endless_name.enough" "$@"
}

# end NAME: an endless program ends well.
end() {
    : > "$dir/$1.enough"
    expect_pass "$1"
}

expect_slices() {
    within "$patience" slices "$@" || fail "not so: $*"
}

export GPUMUX_LOG="$dir/shim.log"
start_default
endless a --seed 1
await_ready a
expect_slices a=0
GPUMUX_CLASS=latency endless critical --seed 2
expect_slices critical=1000000 a=1
# b is there, without work: a is still the only one that keeps the GPU from others.
app b linked --mode cycle --bytes 8M --hold 600000
await_ready b
within "$patience" has_state b idle || fail "b does not become idle"
expect_slices critical=1000000 a=1 b=1
short_turns_of() {
    app_number "$(pid_of "$1")" short_turns
}
# b had turns while it began.
for try in 1 2 3 4 5; do
    take_status
    turns_before=$(short_turns_of a),$(short_turns_of b)
    sleep .2
    take_status
    [ "$(short_turns_of a),$(short_turns_of b)" != "$turns_before" ] || break
done
[ "$(short_turns_of a),$(short_turns_of b)" = "$turns_before" ] || fail "a takes turns with nobody"
turns_before=$(short_turns_of b)
endless c --seed 3
expect_slices critical=1000000 a=1 b=1 c=1
# have_turns NAME...: each had ten of them
have_turns() {
    is_up || return 1
    for have_turns_of; do
        [ "$(short_turns_of "$have_turns_of")" -ge 10 ] || return 1
    done
}
within "$patience" have_turns a c || fail "a and c do not take turns"
[ "$(short_turns_of b)" = "$turns_before" ] || fail "b, which does nothing, has turns"
steps() {
    cat "$dir/$1.steps" 2> /dev/null || echo 0
}
# One works, and the other one stands still: in one moment a, in another c, and both only where a turn ends in it. A moment that
# this busy machine made longer than half a turn says nothing.
alternate() {
    python3 -B - "$dir/a.steps" "$dir/c.steps" << 'END'
import sys, time

def steps():
    return [open(path, encoding="ascii").read() for path in sys.argv[1:]]

one = both = 0
end = time.monotonic() + 60
while one + both < 20 and time.monotonic() < end:
    begun, before = time.monotonic(), steps()
    time.sleep(.01)
    after = steps()
    if time.monotonic() - begun < .025:
        n_work = sum(now != then for now, then in zip(after, before))
        one += n_work == 1
        both += n_work == 2
print(f"timeslices: in {one} moments one of a and c works, in {both} both")
sys.exit(one * 3 <= both)
END
}
within "$patience" [ -s "$dir/a.steps" ] && within "$patience" [ -s "$dir/c.steps" ] || fail "they do not tell their steps"
within 1 alternate || fail "a and c work at the same time"
# Nobody stands still for good.
for works in a c; do
    steps_before=$(steps $works)
    goes_on() {
        [ "$(steps $works)" -gt "$steps_before" ]
    }
    within "$patience" goes_on || fail "$works stands still"
done
# One that is stopped has no turns until it goes on: a works nearly all the time.
works_on() {
    n_works=0
    for moment in $(seq 40); do
        a_before=$(steps a)
        sleep .01
        n_works=$((n_works + ($(steps a) > a_before)))
    done
    say "a works in $n_works of 40 moments"
    [ "$n_works" -ge 36 ]
}
stop c
within "$patience" works_on || fail "c keeps its turns though it is stopped"
kill -CONT "$(pid_of c)"
turns_before=$(short_turns_of c)
has_turns_again() {
    is_up && [ "$(short_turns_of c)" -ge $((turns_before + 3)) ]
}
within "$patience" has_turns_again || fail "c has no turns any more"
# Somebody cannot be held: no turns. Nor are those of a group, which run together.
SIMCUDA_DISABLE_CHANNELS=0x1b endless d --seed 4
expect_slices critical=1000000 a=200 b=200 c=200 d=200
end d
expect_slices critical=1000000 a=1 b=1 c=1
for member in e f; do
    GPUMUX_GROUP=pair endless $member --seed 5
done
expect_slices critical=1000000 a=200 b=200 c=200 e=200 f=200
end e
end f
expect_slices critical=1000000 a=1 b=1 c=1
end c
expect_slices critical=1000000 a=1 b=1
# One that hardly works gives its turns back: a works nearly all the time.
app light linked --mode steady --pause 30 --until "$dir/light.enough"
await_ready light
take_status
light_before=$(short_turns_of light)
within 1 works_on || fail "light keeps its turns without work"
take_status
[ "$(short_turns_of light)" -gt "$light_before" ] || fail "light has no turns"
end light

"$ctl" set "$(pid_of critical)" class=auto > /dev/null || fail "mux-ctl set"
expect_slices critical=0 a=0 b=0
"$ctl" set "$(pid_of a)" weight=3 > /dev/null || fail "mux-ctl set"
expect_slices critical=2048 a=6144 b=0 # b has no work
"$ctl" set "$(pid_of a)" weight=1 > /dev/null || fail "mux-ctl set"
expect_slices critical=0 a=0 b=0
"$ctl" set "$(pid_of critical)" class=interactive > /dev/null || fail "mux-ctl set"
expect_slices critical=1000000 a=1 b=1
"$ctl" pause "$(pid_of critical)" > /dev/null || fail "mux-ctl pause"
expect_slices a=0 b=0
"$ctl" resume "$(pid_of critical)" > /dev/null || fail "mux-ctl resume"
expect_slices critical=1000000 a=1 b=1
end critical
expect_slices a=0 b=0
end a
kill "$(pid_of b)"
await b
unset GPUMUX_LOG
! grep 'does not take a timeslice' "$dir/shim.log" || fail "the driver has other timeslices"
stop_daemon

# The driver refuses, or the daemon is not to: the driver's own values.
rm -f "$dir"/*.enough
start_default
SIMCUDA_SET_TIMESLICE=0x1b endless a --seed 1
lacks() {
    is_up && app_has "$(pid_of a)" '"features_off":\[[^]]*"timeslices"'
}
within "$patience" lacks || fail "the status does not say that a does without timeslices"
GPUMUX_CLASS=latency endless critical --seed 2
expect_slices critical=1000000 a=0
end a
end critical
stop_daemon

rm -f "$dir"/*.enough
start_default --latency-mode off
endless a --seed 1
GPUMUX_CLASS=latency endless critical --seed 2
for running in a critical; do
    within "$patience" has_state $running running || fail "$running does not run"
done
take_status
slices critical=0 a=0 || fail "there are timeslices with --latency-mode off"
end a
end critical
stop_daemon

# Nothing is set: a program that is mostly idle is found to be interactive, though all are of one level yet. While it works,
# others that work without a rest have the shortest timeslices of the GPU; while it rests, all have the driver's own.
part found
start_default
app long linked --mode endless --bytes 16M --hold 1 --until "$dir/enough"
app chat linked --mode count --bytes 16M --hold 300 --pause 900 --iterations 1000
await_ready long
await_ready chat
at_level() {
    is_up && [ "$(app_number "$(pid_of "$1")" level)" = "$2" ]
}
for request in 1 2 3; do
    within "$patience" slices long=1 chat=0 || fail "chat is not found to be interactive"
    within "$patience" slices long=0 chat=0 || fail "chat counts while it rests"
done

# What is said stands above what is found.
"$ctl" set "$(pid_of chat)" class=batch > /dev/null || fail "mux-ctl set"
within "$patience" at_level chat 3 || fail "chat is at another level than 3"
for moment in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    take_status
    slices long=0 chat=0 || fail "chat counts though it is batch"
    sleep .1
done
touch "$dir/enough"
expect_pass long
kill "$(pid_of chat)"
await chat
expect_empty
stop_daemon
