# Does simcuda answer as the real driver did?  facts.sh PROGRAM EXPECTED
# Lines of EXPECTED that begin with # are for people.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
SIMCUDA_DIR=$dir "$1" >"$dir/got" || { cat "$dir/got"; echo "facts.sh: the program failed"; exit 1; }
grep -v '^#' "$2" >"$dir/expected" || exit 1
diff -u "$dir/expected" "$dir/got"
