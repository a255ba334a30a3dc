#!/bin/sh
# Another user's processes speak the protocol at random and launch nothing (tests/programs/hostile_many.c), beside two
# programs of root that take turns and verify their memory. These lose no byte and not their turns, the daemon lives, and
# root's `mux-ctl status` is answered.
#
#   ROUNDS   how often: $CALM seconds without them, then $STORM seconds with them; then once more without. A single round
#            finds what may not happen at all. Several of a minute each tell whether root's programs keep their rate.
#   SEED     what they do
GM_SHRINK=1 # it is small as it is
. "$(dirname "$0")/lib.sh"
hostile=$BUILD/tests/programs/gm_hostile_many
rounds=${ROUNDS:-1} calm=${CALM:-1} storm=${STORM:-3}
status_s=2 # the most for an answer
[ "${GM_LINKED:-}" != 1 ] || status_s=6
need_stranger
export SIMCUDA_COPY_RATE=400M # so that moving memory takes time, not processors

# Processors that are busy with something else make everything slower.
busy() {
    awk -v cores="$(nproc)" '{ busy = $1 / cores; print (busy > 1 ? busy : 1) }' /proc/loadavg
}

# ask: the milliseconds that an answer takes are the last line of $dir/asked.
ask() {
    asked_at=$(date +%s%N)
    "$ctl" status --json > "$dir/asked.json" 2> "$dir/asked.err"
    [ $? != 3 ] || fail "mux-ctl status of root: $(cat "$dir/asked.err")" # 1: no answer in 5 s, which is too long, or is not
    asked_ms=$((($(date +%s%N) - asked_at) / 1000000))
    echo "$asked_ms $(busy)" >> "$dir/asked"
    awk -v ms="$asked_ms" -v most="$status_s" -v busy="$(busy)" 'BEGIN { exit !(ms <= most * 1000 * busy) }' ||
        fail "mux-ctl status of root took $asked_ms ms (load $(cut -d' ' -f1-3 /proc/loadavg))"
}

# pair PHASE SECONDS: two programs of root take turns for so long; what they did is in $dir/rates.PHASE.
pair() {
    for pair_name in one two; do
        orphan "$pair_name" linked --bytes 14M --allocs 3 --pause 10 --iterations 2 --seconds "$2" --seed 1
    done
    until has_ended one && has_ended two; do
        ask
        ! has_ended daemon || fail "the daemon ended with $(cat "$dir/daemon.code")"
        sleep 0.25
    done
    expect_pass one two
    for pair_name in one two; do
        grep -q 'connected' "$dir/$pair_name.log" || fail "$pair_name ran without gpumux: $(cat "$dir/$pair_name.log")"
        rm "$dir/$pair_name.log"
        sed -n "s/^PASS .*iterations=\([0-9]*\) .*seconds=\([0-9.]*\) .*/$pair_name \1 \2/p" "$dir/$pair_name.out"
    done >> "$dir/rates.$1"
}

# What an administrator says of users who are not trusted: without it, their programs may ask for memory and turns as all may.
start_daemon --gpu-budget 20M --pinned 192M --slice 200ms --rule 'user=65534 user-gpu=4M user-pinned=64M' \
    --rule 'user=65534 class=batch'
round=0
while [ "$round" -lt "$rounds" ]; do
    pair calm "$calm"
    spawn storm $stranger nice -n 19 "$hostile" --seconds 86400 --seed "$((${SEED:-1} + round))"
    pair storm "$storm"
    ! has_ended storm || { await storm; fail "the hostile clients: $line"; }
    kill -TERM "$(pid_of storm)"
    await storm
    say "$line"
    round=$((round + 1))
done
pair calm "$calm"

say "status: $(sort -n "$dir/asked" | awk '{ ms[NR] = $1 } END { print NR, "answers, median", ms[int((NR + 1) / 2)],
    "ms, longest", ms[NR], "ms" }'), load $(cut -d' ' -f1-3 /proc/loadavg)"
for of in one two; do
    rate=$(awk -v of="$of" 'FNR == 1 { file++ } $1 == of { n[file] += $2; s[file] += $3 }
        END { printf "%d %.2f %.2f", 100 * n[2] / s[2] / (n[1] / s[1]), n[1] / s[1], n[2] / s[2] }' \
        "$dir/rates.calm" "$dir/rates.storm")
    say "$of: ${rate%% *} % of its rate without them (${rate#* } iterations a second)"
    # A few seconds tell little of a rate, least on a busy machine: then only that it goes on, as --iterations says.
    [ "$rounds" = 1 ] || [ "${rate%% *}" -ge 80 ] || fail "$of lost its turns"
done
check_daemon
expect_empty
stop_daemon
