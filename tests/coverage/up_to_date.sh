# Is the page what the tables say?  up_to_date.sh PROGRAM PAGE
made=$(mktemp) || exit 1
trap 'rm -f "$made"' EXIT
"$1" > "$made" || exit 1
diff -u "$2" "$made" && exit 0
echo "shim/COVERAGE.md is out of date: renew it with: cmake --build BUILD --target coverage"
exit 1
