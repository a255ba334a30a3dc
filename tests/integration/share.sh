#!/bin/sh
# Programs share memory by cuIpc*: under switches, however it ends, and what is refused.
. "$(dirname "$0")/lib.sh"

# Two programs open what a third shares, and all three write it in turn, under switches with a fourth: what is shared stays on the
# GPU whoever runs, is counted, and nothing of it is left in the end.
part "in turn"
start_daemon
app hog linked --mode verify --bytes 96M --allocs 3 --seed 5 --until "$dir/go"
app owner proc --mode share --bytes 48M --allocs 3 --iterations 8 --threads 2 --signal "$dir/meeting"
app one linked --mode open --signal "$dir/meeting" --go "$dir/go"
app two dlsym --mode open --signal "$dir/meeting" --own-context --go "$dir/go"
await_ready owner
await_ready one
await_ready two
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((48 * 1048576 / shrink))" ] ||
    fail "the owner shares $(app_number "$(pid_of owner)" shared_bytes) bytes"
[ "$(app_number "$(pid_of one)" opened_bytes)" = "$((48 * 1048576 / shrink))" ] ||
    fail "an opener has $(app_number "$(pid_of one)" opened_bytes) bytes open"
[ "$(gpu shared_bytes)" = "$((48 * 1048576 / shrink))" ] || fail "$(gpu shared_bytes) bytes are shared in all"
"$ctl" status > "$dir/table.out"
grep -q "shares $((48 / shrink))" "$dir/table.out" || fail "the table does not say what is shared"
touch "$dir/go"
expect_pass owner one two hog
expect_empty
check_daemon
[ "$(gpu shared_bytes)" = 0 ] || fail "$(gpu shared_bytes) bytes are shared still"

# Enough for two of them at once and never for three: they take turns.
app hog linked --mode verify --bytes 96M --allocs 3 --iterations 3 --seed 6 --until "$dir/enough"
app owner linked --mode share --bytes 48M --allocs 2 --iterations 6 --threads 1 --signal "$dir/other"
await_ready owner
app one proc --mode open --signal "$dir/other"
app more linked --mode verify --bytes 96M --allocs 2 --iterations 3 --seed 8 --until "$dir/enough"
await_switches 3
expect_pass owner one hog more
expect_switches 3
expect_empty
check_daemon

# However sharing ends: freed while it is open, the owner killed, an opener killed, one closing before the other, all of it beside
# a program that switches with them. Who has it open keeps what is in it; nothing of it is used for others before all have let go;
# then all of it is free.
part "its end"
app hog linked --mode verify --bytes 96M --allocs 3 --seed 5 --until "$dir/enough"

# freed while open: the openers go on, in any order of closing
app owner linked --mode share-free --bytes 32M --allocs 2 --iterations 2 --threads 2 --signal "$dir/freed"
app first proc --mode open --signal "$dir/freed" --go "$dir/freed.first"
app second linked --mode open --signal "$dir/freed" --go "$dir/freed.second"
is_freed() {
    take_status
    app_has "$(pid_of owner)" '"shared_bytes":0,' && app_has "$(pid_of owner)" '"total_bytes":0,' &&
        [ "$(gpu shared_bytes)" = "$((32 * 1048576 / shrink))" ]
}
within "$patience" is_freed || fail "what was freed while it is open is not kept: $(gpu shared_bytes) bytes"
# it is full around it meanwhile
app other linked --mode verify --bytes 96M --allocs 2 --iterations 2 --seed 7
expect_pass other
touch "$dir/freed.second"
expect_pass second
take_status
[ "$(gpu shared_bytes)" = "$((32 * 1048576 / shrink))" ] || fail "kept until all closed it: $(gpu shared_bytes) bytes"
touch "$dir/freed.first"
expect_pass first owner
is_given_back() {
    take_status
    [ "$(gpu shared_bytes)" = 0 ]
}
within "$patience" is_given_back || fail "it is not given back: $(gpu shared_bytes) bytes"

# the owner killed, while two have it open; one of them killed after it
app owner linked --mode share-stay --bytes 32M --allocs 2 --iterations 2 --threads 2 --signal "$dir/killed" \
    --go "$dir/killed.stays"
app first proc --mode open --signal "$dir/killed" --go "$dir/killed.first"
app second linked --mode open --signal "$dir/killed" --go "$dir/killed.second"
within "$patience" test -f "$dir/killed.stays" || fail "the owner does not come that far"
kill -KILL "$(pid_of owner)"
await owner
app other linked --mode verify --bytes 96M --allocs 2 --iterations 2 --seed 9
expect_pass other
take_status
[ "$(gpu shared_bytes)" = "$((32 * 1048576 / shrink))" ] || fail "lost with its owner: $(gpu shared_bytes) bytes"
kill -KILL "$(pid_of second)"
await second
touch "$dir/killed.first"
expect_pass first
within "$patience" is_given_back || fail "it is not given back: $(gpu shared_bytes) bytes"

# an opener killed, while the owner goes on; then the owner, with nobody left
app owner linked --mode share-stay --bytes 32M --allocs 2 --iterations 2 --threads 1 --signal "$dir/opener" \
    --go "$dir/opener.stays"
app first linked --mode open --signal "$dir/opener"
within "$patience" test -f "$dir/opener.stays" || fail "the owner does not come that far"
kill -KILL "$(pid_of first)"
await first
is_closed() {
    take_status
    [ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((32 * 1048576 / shrink))" ] && ! app_has "$(pid_of first)" .
}
within "$patience" is_closed || fail "the opener's end changed what is shared"
kill -KILL "$(pid_of owner)"
await owner
touch "$dir/enough"
expect_pass hog
expect_empty
check_daemon
[ "$(gpu shared_bytes)" = 0 ] || fail "$(gpu shared_bytes) bytes are shared by nobody"

# What sharing refuses, and that memory of the driver is the driver's to share, by option all of it.
part misuse
app misuse proc --mode misuse --bytes 8M --allocs 2
expect_pass misuse
expect_empty
check_daemon

# all of it the driver's: it counts as such, and is shared without the daemon
export GPUMUX_SHARING=real
app owner linked --mode share --bytes 24M --allocs 2 --iterations 4 --threads 2 --signal "$dir/real"
app one linked --mode open --signal "$dir/real" --go "$dir/go"
await_ready owner
await_ready one
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = 0 ] || fail "the daemon shares it"
[ "$(app_number "$(pid_of owner)" total_bytes)" = 0 ] || fail "gpumux backs it"
[ "$(app_number "$(pid_of owner)" small_bytes)" -ge "$((24 * 1048576 / shrink))" ] || fail "it is not counted"
# ... also with a program that knows nothing of gpumux
native two linked --mode open --signal "$dir/real"
touch "$dir/go"
expect_pass owner one two
expect_empty

# an unknown word counts as broker, and is said once
export GPUMUX_SHARING=maybe GPUMUX_LOG="$dir/shim.log"
app owner linked --mode share --bytes 8M --allocs 1 --iterations 1 --threads 1 --signal "$dir/third"
app one linked --mode open --signal "$dir/third" --go "$dir/later"
await_ready owner
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((8 * 1048576 / shrink))" ] || fail "the broker is not used"
touch "$dir/later"
expect_pass owner one
[ "$(grep -c 'GPUMUX_SHARING must be' "$dir/shim.log")" = 2 ] || fail "an unknown GPUMUX_SHARING is not said once each"
unset GPUMUX_SHARING GPUMUX_LOG
expect_empty
check_daemon
stop_daemon
