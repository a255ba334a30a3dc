#!/bin/sh
# However sharing ends: freed while it is open, the owner killed, an opener killed, one closing before the other, all of
# it beside a program that switches with them. Who has it open keeps what is in it; nothing of it is used for others
# before all have let go; then all of it is free.
. "$(dirname "$0")/lib.sh"

start_daemon
app hog linked --mode verify --bytes 96M --allocs 3 --seconds 8 --seed 5

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
app other linked --mode verify --bytes 96M --allocs 2 --iterations 6 --seed 7
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
app other linked --mode verify --bytes 96M --allocs 2 --iterations 6 --seed 9
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
expect_pass hog
expect_empty
check_daemon
[ "$(gpu shared_bytes)" = 0 ] || fail "$(gpu shared_bytes) bytes are shared by nobody"
stop_daemon
