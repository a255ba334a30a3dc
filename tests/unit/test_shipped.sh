#!/bin/sh
# The profiles that are shipped (profiles/): each can be read and has what select.py chooses, all are small, and what is damaged,
# bad or there twice is found. And tests/gpu/record-profiles.sh makes such files, of records that a fake program writes.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-shipped.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
select=$SOURCE/shim/profiler/profiles/select.py

fail() {
    echo "shipped: FAILED: $*"
    cat "$dir"/*.out
    exit 1
}

# is_good FOLDER: select.py finds nothing, and mux-ctl reads each file.
is_good() {
    python3 -B "$select" --check "$1" > "$dir/check.out" 2>&1 || return 1
    for file in "$1"/*.profile; do
        [ ! -f "$file" ] || (umask 022 && cat "$file" > "$dir/copy" && "$BUILD/daemon/mux-ctl" profile --show "$dir/copy" > "$dir/show.out" 2>&1) || return 1
    done
}

is_good "$SOURCE/shim/profiler/profiles" || fail "profiles/ is not good"

# --- what is chosen ---
mkdir "$dir/good"
{
    echo "gpumux-profile 1"
    echo "kernel 00000000000000a1 40 9 0 0 0 good" && echo "touch 0 0 0+4/1*w16 0 1"
    echo "kernel 00000000000000a2 40 5 51 0 0 missed" && echo "touch 0 0 4096 0 1"
    echo "kernel 00000000000000a3 40 5 0 1001 0 excess" && echo "touch 0 0 4096 0 1"
    echo "kernel 00000000000000a4 40 1 65535 65535 0 once" && echo "touch 0 0 4096 0 1"
    echo "kernel 00000000000000a5 40 8 0 0 0 says_nothing" && echo "other 0"
    echo "kernel 00000000000000a6 40 7 50 1000 0 untouched" && echo "none 0" && echo "other 8"
    echo "end 6"
} > "$dir/learned"
python3 -B "$select" "$dir/learned" "$dir/good/a.profile" > "$dir/said.out" 2>&1 || fail "select.py chooses nothing"
grep -q '^2 of 6 kernels, ' "$dir/said.out" || fail "select.py does not say what it chose"
[ "$(sed -n 's/^kernel [^ ]* .* //p' "$dir/good/a.profile" | tr '\n' ' ')" = "good untouched " ] || fail "other kernels were chosen"
is_good "$dir/good" || fail "what select.py chose is not good"
python3 -B "$select" --most 120 "$dir/learned" "$dir/few" > "$dir/said.out" 2>&1
grep -q '^1 of 6 kernels, ' "$dir/said.out" || fail "select.py chose more than there is room for"

# --- what is found ---
# bad WHAT SED: with this change it is not good any more.
bad() {
    rm -rf "$dir/bad" && mkdir "$dir/bad" && sed "$2" "$dir/good/a.profile" > "$dir/bad/a.profile"
    cmp -s "$dir/good/a.profile" "$dir/bad/a.profile" && fail "nothing was changed: $1"
    ! is_good "$dir/bad" || fail "not found: $1"
}
bad "another version" '1s/1/2/'
bad "no end" '$d'
bad "a kernel that predicts badly" 's/ 9 0 0 0 good/ 9 51 0 0 good/'
bad "a kernel that says nothing" 's/^touch .*/other 0/'
bad "a template that cannot be read" 's/w16/w17/'
bad "a line that is not known" 's/^none 0/nothing 0/'
cp "$dir/good/a.profile" "$dir/good/b.profile"
! is_good "$dir/good" || fail "a kernel that is there twice is not found"
rm "$dir/good/b.profile"
for first in 10000 30000; do # each is small enough
    echo "gpumux-profile 1"
    seq $first $((first + 9999)) | sed 's/.*/kernel 00000000000& 40 9 0 0 0 a_kernel_whose_name_has_about_as_many_letters_as_such_names_have\nnone 0/'
    echo "end 10000"
done | split -l 20002 --additional-suffix=.profile - "$dir/good/large-"
! is_good "$dir/good" || fail "too much is not found"

# --- how they are made ---
mkdir -p "$dir/build/daemon" "$dir/build/shim/profiler" "$dir/build/bench" "$dir/bin"
ln -s "$BUILD/daemon/mux-ctl" "$dir/build/daemon/mux-ctl"
touch "$dir/build/shim/profiler/libgpumux-profile.so"
cat > "$dir/bin/nvidia-smi" << 'END'
#!/bin/sh
case $1 in *compute_cap*) echo 9.0 ;; *) echo fake, 0 ;; esac
END
cat > "$dir/bin/python3" << 'END'
#!/bin/sh
[ "$1" = -c ] && exit 1 # no PyTorch
case $1 in *product.py) exit 77 ;; esac
exec /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin python3 -B "$@"
END
cat > "$dir/build/bench/bench_science" << 'END'
#!/bin/sh
# NAME --bytes N: records of a kernel that touches N bytes, and of one that touches any
[ -n "$CUDA_INJECTION64_PATH" ] || exit 1
n=$(($3 / 4096))
{
    printf 'gpumux-records 1\nkernel 0 00000000000000%x 40 %s\nkernel 1 00000000000001%x 40 gather\nalloc 7f0000000000 1073741824\n' \
        "$(printf '%d' "'$1")" "$1" "$(printf '%d' "'$1")"
    for launch in 1 2 3 4; do
        printf 'launch 0 %d 1 1 256 1 1 00000000007f0000\ntouch 7f0000000 %d\n' $n $n
        printf 'launch 1 %d 1 1 256 1 1 00000000007f0000\ntouch 7f00%05x 1\n' $n $((launch * launch * 7919 % 65536))
    done
} > "$GPUMUX_PROFILE_RECORDS/$$.records"
END
chmod +x "$dir/bin/nvidia-smi" "$dir/bin/python3" "$dir/build/bench/bench_science"
PATH="$dir/bin:$PATH" LIMIT=150 sh "$SOURCE/tests/gpu/record-profiles.sh" "$dir/build" "$dir/made" > "$dir/made.out" 2>&1 ||
    fail "profiles cannot be made"
is_good "$dir/made" || fail "what was made is not good"
[ "$(grep -c '^touch 0 0 0+16/1\*gx\*bx 0 1$' "$dir/made/sm90-science.profile")" = 6 ] || fail "the templates are others: $(cat "$dir/made/sm90-science.profile")"
grep -q '^sm90-science.profile: 6 of 12 kernels, ' "$dir/made.out" || fail "it does not say what was chosen"
