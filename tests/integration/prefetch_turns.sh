#!/bin/sh
# Three programs in turn, none of which rests, with room on the GPU for one and two thirds. While one computes, what
# is left of that room is made the next one's: its switch then moves no more than what has no place before its turn.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

# Of each switch, the MiB that came in.
switches_in() {
    sed -n 's/.*MiB out, \([0-9]*\) in, at .*/\1/p' "$dir/daemon.out"
}
has_twelve() {
    [ "$(switches_in | wc -l)" -ge 12 ]
}

start_daemon --pinned 512M --rule 'command=* class=batch' --slice 175ms --log-level debug # turns of 700 ms
for i in 1 2 3; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 1 --seed "$i" --until "$dir/enough"
done
within "$patience" has_twelve || fail "no more than $(switches_in | wc -l) switches"
switches_in | sed -n 5,12p > "$dir/in" # the first ones fill
touch "$dir/enough"
expect_pass app1 app2 app3
say "switches 5 to 12 brought $(tr '\n' ' ' < "$dir/in")MiB"
expect_empty
stop_daemon
# 160 MiB hold one program of 96 and two thirds of the next.
[ "$(grep -cx 32 "$dir/in")" -ge 6 ] || fail "the room on the GPU was not the next one's"
