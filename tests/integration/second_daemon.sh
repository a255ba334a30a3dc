#!/bin/sh
# A second daemon on the same GPU, with a socket of its own, would hand the same memory out again. It is refused, and
# the line names who has the GPU; with --shared-gpu it starts. A claim ends with its process, however that ends.
. "$(dirname "$0")/lib.sh"
daemon=$BUILD/daemon/gpumuxd

# refuse_second OPTION...: a second daemon, which must be refused. What it says is in $dir/said.
refuse_second() {
    timeout 60 "$daemon" --socket "$dir/second.sock" --gpu-budget 64M --pinned 64M "$@" > "$dir/said" 2>&1
    code=$?
    [ "$code" = 1 ] || fail "the second daemon ended with $code: $(cat "$dir/said")"
    [ "$(wc -l < "$dir/said")" = 1 ] || fail "$(wc -l < "$dir/said") lines: $(cat "$dir/said")"
    [ ! -e "$dir/second.sock" ] || fail "the second daemon left its socket"
}

says() {
    grep -q -- "$1" "$dir/said" || fail "it does not say \"$1\": $(cat "$dir/said")"
}

# user UID: how it is named: by its number where the system takes long to say the name.
user() {
    echo "user \($(id -un "$1")\|$1\)"
}

first() {
    echo "gpumuxd, pid $(pid_of daemon) of $(user "$(id -u)")"
}

start_daemon
for i in 1 2 3; do
    refuse_second
    says "GPU 0 is shared by $(first) already: stop that, or start this one with --shared-gpu"
done
say "$(cat "$dir/said")"

# Another GPU is nobody's, and a shared one is whose it is.
SIMCUDA_DIR=$dir/other && mkdir "$SIMCUDA_DIR"
spawn second "$daemon" --socket "$dir/second.sock" --gpu-budget 64M --pinned 64M
within "$patience" "$ctl" --socket "$dir/second.sock" status > /dev/null 2>&1 || fail "another GPU is refused"
kill -TERM "$(pid_of second)"
await second
SIMCUDA_DIR=$dir/sim
echo "shared-gpu = yes" > "$dir/conf"
for way in --shared-gpu "--config=$dir/conf"; do
    spawn second "$daemon" --socket "$dir/second.sock" --gpu-budget 64M --pinned 64M "$way"
    within "$patience" "$ctl" --socket "$dir/second.sock" status > /dev/null 2>&1 || fail "with $way it does not start"
    grep -q "GPU 0 is also shared by $(first): give each a --gpu-budget" "$dir/second.out" || fail "$way: no warning"
    kill -TERM "$(pid_of second)"
    await second
    [ "$code" = 0 ] || fail "the second daemon ended with $code"
done

# Neither a crash nor a stop leaves the claim behind.
kill -KILL "$(pid_of daemon)"
await daemon
start_daemon
stop_daemon
start_daemon

# Daemons of other users.
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null && chmod 755 "$dir" && chmod -R a+rwX "$dir/sim" &&
    setpriv --reuid 65534 --clear-groups -- "$ctl" status > /dev/null 2>&1; then
    mkdir "$dir/theirs" && chmod 777 "$dir/theirs"
    timeout 60 setpriv --reuid 65534 --clear-groups -- \
        "$daemon" --socket "$dir/theirs/s" --gpu-budget 64M --pinned 64M > "$dir/said" 2>&1
    says "GPU 0 is shared by $(first) already"
    stop_daemon
    spawn second setpriv --reuid 65534 --clear-groups -- \
        "$daemon" --socket "$dir/theirs/s" --gpu-budget 64M --pinned 64M
    within "$patience" "$ctl" --socket "$dir/theirs/s" status > /dev/null 2>&1 || fail "theirs does not start"
    refuse_second
    says "pid $(pid_of second) of $(user 65534)"
    say "$(cat "$dir/said")"
    kill -KILL "$(pid_of second)"
    await second
    # Somebody takes the name and does not answer: the line still says who.
    if command -v perl > /dev/null; then
        uuid=$(sed -n 's/.*"uuid":"GPU-\([0-9a-f-]*\)".*/\1/p' "$dir/status.json" | tr -d -)
        spawn taker setpriv --reuid 65534 --clear-groups -- perl -MSocket -e '
            socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
            bind($s, pack("Sa*", AF_UNIX, "\0gpumux-gpu-$ARGV[0]")) or die "bind: $!\n";
            open(my $ready, ">", $ARGV[1]) or die "$!\n";
            close $ready;
            sleep 1000' "$uuid" "$dir/theirs/taken"
        is_taken() {
            [ -e "$dir/theirs/taken" ] || has_ended taker
        }
        within "$patience" is_taken
        refuse_second
        says "GPU 0 is shared by perl, pid $(pid_of taker) of $(user 65534)"
        say "$(cat "$dir/said")"
        kill -KILL "$(pid_of taker)"
        await taker
    fi
    start_daemon
else
    say "(daemons of other users are left out: this needs root, setpriv and a build that they may read)"
fi
stop_daemon
