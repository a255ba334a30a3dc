#!/bin/sh
# mux-ctl profile, without a GPU: records are learned into a profile, a second run is merged, tables show it; a program is
# started with what the profiler needs and its exit code comes back; damaged files are refused and stay as they are.
set -u
ctl=$BUILD/daemon/mux-ctl
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-mux-profile.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
export HOME="$dir/home" TMPDIR="$dir"
unset XDG_CONFIG_HOME

fail() {
    echo "mux_profile: FAILED: $*"
    cat "$dir"/*.out "$dir"/*.err
    exit 1
}

# learn ARGUMENT...: mux-ctl profile, with its output in out.out and out.err.
learn() {
    "$ctl" profile "$@" > "$dir/out.out" 2> "$dir/out.err"
}

# records SCALE: a kernel that touches SCALE * n bytes behind its first address and 1 MiB behind its second.
records() {
    echo "gpumux-records 1"
    echo "kernel 0 00000000000000a1 40 _Z4copyPfS_i"
    echo "alloc 7f0000000000 1073741824"
    echo "alloc 7f0080000000 1073741824"
    for i in 1 2 3 4 5 6 7 8; do
        n=$((i * i * 65536))
        printf 'launch 0 %d 1 1 256 1 1 00000000007f000000000080007f0000' $((n / 256))
        printf '%02x%02x%02x%02x\n' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)) $((n >> 24 & 255))
        echo "touch 7f0000000 $((n * $1 / 4096))"
        echo "touch 7f0080000 256"
    done
}

# --- learn, merge, show ---
records 4 > "$dir/a.records"
learn --learn -o "$dir/p/a.profile" "$dir/a.records" || fail "records cannot be learned"
grep -q "^8 launches of 1 kernels; .*: 1 fixed, 1 linear, 0 strided" "$dir/out.out" || fail "it does not say what was learned"
grep -q "^  0.00 %    0.00 %  the profile$" "$dir/out.out" || fail "it does not say how good the profile is"
grep -Eq "^  0.00 %  +[0-9]+\.[0-9]+ %  whole allocations$|^  0.00 %  +> 655 %  whole allocations$" "$dir/out.out" ||
    fail "it does not say how good allocations are"
grep -q "^touch 0 0 0+4/1\*w16 0 1$" "$dir/p/a.profile" || fail "the template is another"
grep -q "^touch 8 0 1048576 0 1$" "$dir/p/a.profile" || fail "the template is another"
learn --learn -o "$dir/p/a.profile" "$dir/a.records" || fail "records cannot be merged"
grep -q "^kernel 00000000000000a1 40 16 0 0 0 _Z4copyPfS_i$" "$dir/p/a.profile" || fail "launches do not add up"
learn --show "$dir/p/a.profile" || fail "it cannot be shown"
grep -q "^ *0  T2 linear   4 \* w16 bytes$" "$dir/out.out" || fail "the table lacks a template"
grep -q "^ *16    0.00 %    0.00 %  0         _Z4copyPfS_i$" "$dir/out.out" || fail "the table lacks the kernel"

# --- a program, its exit code, and the user's folder ---
learn --show || fail "no profile is an error"
grep -q "^There is no profile" "$dir/out.out" || fail "it does not say that there is none"
touch "$dir/library.so"
export GPUMUX_PROFILE_LIB="$dir/library.so"
records 8 > "$dir/b.records"
learn --keep "$dir/kept" -- sh -c 'cp "$0" "$GPUMUX_PROFILE_RECORDS/1.records"
    [ "$CUDA_INJECTION64_PATH" = "$GPUMUX_PROFILE_LIB" ] && exit 7' "$dir/b.records"
[ $? = 7 ] || fail "the program's exit code is lost"
profile=$(ls "$HOME/.config/gpumux/profiles/"*.profile) || fail "the profile is not in the user's folder"
grep -q "^touch 0 0 0+8/1\*w16 0 1$" "$profile" || fail "the template is another"
cmp -s "$dir/b.records" "$dir/kept/1.records" || fail "the records are not kept"
learn --show && grep -qF "$profile: 1 kernels" "$dir/out.out" || fail "the user's profiles are not shown"
learn -- sh -c 'cp "$0" "$GPUMUX_PROFILE_RECORDS/1.records"' "$dir/b.records" || fail "a second run"
[ -z "$(ls -d "$dir"/gpumux-profile-* 2> /dev/null)" ] || fail "a folder is left"
learn -- sh -c : && fail "a program without a launch has a profile"
grep -q "recorded nothing" "$dir/out.err" || fail "it does not say that nothing was recorded"
learn -- "$dir/none"
[ $? = 127 ] || fail "a program that is not there does not end with 127"
learn -- "$dir/a.records"
[ $? = 126 ] || fail "what cannot be executed does not end with 126"
learn && fail "no program, and no error"

# --- what is damaged is refused, with one line, and stays ---
refused() {
    cp "$1" "$dir/before"
    learn --learn -o "$1" "$dir/a.records" && fail "$2: it was taken"
    grep -q "is left as it is: " "$dir/out.err" || fail "$2: no reason"
    [ "$(wc -l < "$dir/out.err")" = 1 ] || fail "$2: more than one line"
    cmp -s "$1" "$dir/before" || fail "$2: it was changed"
}
head -n 2 "$dir/p/a.profile" > "$dir/cut.profile"
refused "$dir/cut.profile" "cut"
sed '1s/1/2/' "$dir/p/a.profile" > "$dir/newer.profile"
refused "$dir/newer.profile" "newer"
learn --show "$dir/newer.profile" "$dir/p/a.profile" && fail "a newer profile is shown"
grep -q "newer.profile: it is a profile of version 2, and this gpumux reads version 1$" "$dir/out.err" || fail "no reason"
grep -q "a.profile: 1 kernels" "$dir/out.out" || fail "the other one is not shown"
cp "$dir/p/a.profile" "$dir/open.profile"
chmod 666 "$dir/open.profile"
refused "$dir/open.profile" "written by others"
{ cat "$dir/a.records" && echo "what" && cat "$dir/a.records"; } > "$dir/c.records"
learn --learn -o "$dir/c.profile" "$dir/c.records" || fail "what stands before a wrong line is lost"
grep -q "c.records: line 29: not a record; what is behind it is left out$" "$dir/out.err" || fail "no reason"
grep -q "^kernel 00000000000000a1 40 8 " "$dir/c.profile" || fail "what stands before a wrong line is lost"
learn --learn -o "$dir/d.profile" "$dir/p/a.profile" && fail "a profile was learned from"
[ ! -e "$dir/d.profile" ] || fail "an empty profile was written"
learn --learn -o "$dir/none/../a.records/x" "$dir/a.records" && fail "it is written where nothing can be"
[ "$(wc -l < "$dir/out.err")" = 1 ] || fail "more than one line: $(cat "$dir/out.err")"
echo "learned, merged, shown and refused"
