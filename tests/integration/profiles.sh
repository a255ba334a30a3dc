#!/bin/sh
# Two programs, each with one allocation of which a turn touches a part, and whose kernels get its address and an index. With
# a profile the rest of it is cold, and without one nothing is. Wrong profiles (too short, shifted, another kernel's) change
# no result; the log names the kernel whose profile is not used, and why.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"
export SIMCUDA_NO_COUNTERS=1 # trials find it without a profile, too
export XDG_CONFIG_HOME="$dir/config"
profiles=$XDG_CONFIG_HOME/gpumux/profiles
mkdir -p "$profiles"

# programs N: two, which check and rewrite 16 of 120 MiB for N times 0.7 s, then check all.
programs() {
    turns=$1
    { yes "turn rewrite 700" | head -n "$turns"; echo check; } > "$dir/commands"
    program one
    program two
}
program() {
    spawn "$1" env GPUMUX_LOG="$dir/$1.log" sh -c '"$0" run -- "$1" --bytes 120M --piece 8M --touch 16M --one < "$2"' \
        "$ctl" "$BUILD/bench/bench_app" "$dir/commands"
}

# Both ended well, and no word was wrong.
are_right() {
    for program in one two; do
        await "$program"
        [ "$code" = 0 ] || fail "$program ended with $code"
        [ "$(grep -c 'mismatches=0$' "$dir/$program.out")" = $((turns + 1)) ] ||
            fail "$program found wrong data, or did not do all"
    done
}

says() {
    grep -qs "$2" "$dir/$1.log"
}

# profile LINE KERNEL HASH...: one with a kernel or more, each with this line.
profile() {
    {
        echo "gpumux-profile 1"
        profile_line=$1
        shift
        profile_n=0
        while [ $# -gt 1 ]; do
            echo "kernel $2 0 1 0 0 0 $1"
            echo "$profile_line"
            profile_n=$((profile_n + 1))
            shift 2
        done
        echo "end $profile_n"
    } > "$profiles/test.profile"
}

# hash_of KERNEL: as the log has it of a kernel whose profile has another.
hash_of() {
    sed -n "s/.*kernel $1: .*(hash \([0-9a-f]*\)).*/\1/p" "$dir/one.log" | head -n 1
}

# Both have memory that is cold: at least the half of what they have.
are_cold() {
    is_up && [ "$(tr ',' '\n' < "$dir/status.json" | sed -n 's/.*"cold_bytes": *//p' | awk '$1 >= 60 * 1048576' | wc -l)" -ge 2 ]
}

# --- another kernel's profile by name: not used, and nothing is cold ---
profile "none 0" gm_verify_refill_at 0000000000000001 gm_verify 0000000000000002
start_daemon
programs 8
within "$patience" says one "kernel gm_verify_refill_at: its profile is not used: it has other parameters" ||
    fail "the log does not name a kernel whose profile is another's"
! within 4 are_cold || fail "without a profile a part of one allocation is cold"
are_right
refill=$(hash_of gm_verify_refill_at)
[ -n "$refill" ] || fail "the log does not tell the kernel's hash"

# --- the right one: what turns do not touch is cold ---
profile "touch 0 0+8/1*d8 0+8/1*d16 0 1" gm_verify_refill_at "$refill"
programs 8
within "$patience" are_cold || fail "with a profile nothing is cold"
are_right
says one "kernel gm_verify_refill_at: by its profile" || fail "the log does not say that the profile is used"

# --- too short, and shifted out of the memory ---
profile "touch 0 0+8/1*d8 0+8/2*d16 0 1" gm_verify_refill_at "$refill"
programs 3
are_right
profile "touch 0 209715200+8/1*d8 0+8/1*d16 0 1" gm_verify_refill_at "$refill"
programs 3
are_right
says one "kernel gm_verify_refill_at: its profile is not used: it leads out of the program's memory" ||
    fail "the log does not name a kernel whose profile leads elsewhere"

# --- damaged ---
head -n 2 "$profiles/test.profile" > "$profiles/cut.profile"
sed '1s/1/2/' "$profiles/test.profile" > "$profiles/newer.profile"
rm "$profiles/test.profile"
programs 3
are_right
says one "cut.profile is ignored: it is cut, or empty" || fail "the log does not name a profile that is cut"
says one "newer.profile is ignored: it is a profile of version 2" || fail "the log does not name a newer profile"
expect_empty
stop_daemon
