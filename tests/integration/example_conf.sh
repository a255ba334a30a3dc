#!/bin/sh
# The example of the configuration file has every option, and works with all of its lines in use. A rule for a user who
# was deleted is told and changes nothing.
. "$(dirname "$0")/lib.sh"
example=$BUILD/systemd/gpumux.conf
[ -s "$example" ] || fail "there is no $example"
"$BUILD/daemon/gpumuxd" --help | sed -n 's/^ *--\([a-z-]*\).*/\1/p' | grep -Evx 'check|config|drain|user|help|version' > "$dir/names"
[ "$(wc -l < "$dir/names")" -gt 20 ] || fail "the help has no options: $(cat "$dir/names")"
while read -r option; do
    grep -q "^#$option = [^ ]" "$example" || fail "the example lacks $option"
done < "$dir/names"
[ "$(grep -c '^#[^ ]' "$example")" = "$(wc -l < "$dir/names")" ] || fail "the example has other options: $(grep '^#[^ ]' "$example")"
awk 'length > 100 { exit 1 }' "$example" || fail "a line is wider than 100 columns"

# What would be written to the machine stays in this test's folder; the file is read before.
sed 's/^#\([^ ]\)/\1/' "$example" > "$dir/gpumux.conf"
printf 'rule = user=gm-nobody-has-this-name paused\n' >> "$dir/gpumux.conf"
start_default --config "$dir/gpumux.conf" --disk "$dir:64M"
line=$(wc -l < "$dir/gpumux.conf")
grep -q "gpumux.conf:$line: without effect: there is no user \"gm-nobody-has-this-name\"" "$dir/daemon.out" ||
    fail "nothing is said of a deleted user: $(cat "$dir/daemon.out")"
app one linked --bytes 40M --iterations 2
expect_pass one
expect_empty
stop_daemon
