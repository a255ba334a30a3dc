#!/bin/sh
# A second daemon on the same GPU, with a socket of its own, would hand the same memory out again. It is refused, and
# the line names who has the GPU. A claim ends with its process, however that ends. Only
# root can hold the system's claim: whatever another user holds, root's daemon starts.
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
    says "GPU 0 is shared by $(first) already: use or stop that"
done
say "$(cat "$dir/said")"

# Another GPU is nobody's.
SIMCUDA_DIR=$dir/other && mkdir "$SIMCUDA_DIR"
spawn second "$daemon" --socket "$dir/second.sock" --gpu-budget 64M --pinned 64M
within "$patience" "$ctl" --socket "$dir/second.sock" status > /dev/null 2>&1 || fail "another GPU is refused"
kill -TERM "$(pid_of second)"
await second
SIMCUDA_DIR=$dir/sim

# Neither a crash nor a stop leaves the claim behind.
kill -KILL "$(pid_of daemon)"
await daemon
start_daemon
stop_daemon
start_daemon

# Daemons of other users.
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null && chmod 755 "$dir" && chmod -R a+rwX "$dir/sim" &&
    setpriv --reuid 65534 --clear-groups -- "$ctl" status > /dev/null 2>&1; then
    mkdir "$dir/theirs" && chown 65534 "$dir/theirs" && chmod 700 "$dir/theirs"
    theirs="setpriv --reuid 65534 --clear-groups -- env XDG_RUNTIME_DIR=$dir/theirs"
    lock=$(ls "$dir"/run/*.lock) note=$(ls "$dir"/run/*.holder)
    [ "$(stat -c %u:%a "$lock")" = 0:600 ] || fail "others can open the claim: $(ls -l "$dir/run")"

    # start_theirs: it must start
    start_theirs() {
        spawn theirs $theirs "$daemon" --socket "$dir/theirs/s" --gpu-budget 64M --pinned 64M "$@"
        within "$patience" "$ctl" --socket "$dir/theirs/s" status > /dev/null 2>&1 || fail "theirs does not start"
    }
    end_theirs() {
        kill "-$1" "$(pid_of theirs)"
        await theirs
    }
    # refuse_theirs: another one of that user must not
    refuse_theirs() {
        timeout 60 $theirs "$daemon" --socket "$dir/theirs/other" --gpu-budget 64M --pinned 64M > "$dir/said" 2>&1
        [ $? = 1 ] && [ "$(wc -l < "$dir/said")" = 1 ] || fail "another one of that user: $(cat "$dir/said")"
    }

    # Beside the system's.
    refuse_theirs
    says "GPU 0 is shared by $(first) already: use or stop that"
    say "$(cat "$dir/said")"
    # The system's is gone, in whatever way, or its number is another process's now.
    kill -KILL "$(pid_of daemon)"
    await daemon
    [ -L "$note" ] || fail "there is nothing to be mistaken for a daemon"
    start_theirs
    end_theirs TERM
    ln -sfn 1:1 "$note"
    start_theirs

    # The system's beside theirs, and beside whatever that user holds.
    refuse_theirs
    says "GPU 0 is shared by gpumuxd, pid $(pid_of theirs) of $(user 65534) already"
    uuid=$(basename "$lock" .lock)
    uuid=${uuid#gpumux-}
    if command -v perl > /dev/null; then
        spawn taker $theirs perl -MSocket -MFcntl=:flock -e '
            socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
            bind($s, pack("Sa*", AF_UNIX, "\0gpumux-gpu-$ARGV[0]")) or die "bind: $!\n";
            my $open = open(my $lock, "<", $ARGV[1]) ? flock($lock, LOCK_EX) : 0;
            my $made = mkdir($ARGV[1]) + symlink("/etc/passwd", "$ARGV[1].more");
            $| = 1;
            print "open $open made $made\n";
            open(my $ready, ">", $ARGV[2]) or die "$!\n";
            close $ready;
            sleep 1000' "$uuid" "$lock" "$dir/theirs/taken"
        is_taken() {
            [ -e "$dir/theirs/taken" ] || has_ended taker
        }
        within "$patience" is_taken
        grep -qx "open 0 made 0" "$dir/taker.out" || fail "another user gets at the claim: $(cat "$dir/taker.out")"
    fi
    start_daemon
    grep -q "GPU 0 is also shared by gpumuxd, pid $(pid_of theirs) of $(user 65534), for that user" "$dir/daemon.out" ||
        fail "the system's daemon does not say who else is there: $(cat "$dir/daemon.out")"
    say "$(grep "also shared" "$dir/daemon.out")"
    refuse_second
    says "GPU 0 is shared by $(first) already"
    [ ! -f "$dir/taker.pid" ] || { kill -KILL "$(pid_of taker)" && await taker; }
    end_theirs KILL
    stop_daemon
    [ -z "$(ls "$dir/run")" ] || fail "the claim is left: $(ls "$dir/run")"

    # Their folder is somebody else's: that costs them the check alone.
    chown 0 "$dir/theirs" && chmod 777 "$dir/theirs"
    if [ ! -e /run/user/65534 ] && mkdir /tmp/gpumux-65534 2> /dev/null; then
        start_theirs
        end_theirs TERM
        rmdir /tmp/gpumux-65534 || fail "something is in a folder of root"
        grep -q "GPU 0 may be shared by another gpumuxd of yours: /tmp/gpumux-65534 cannot be used" "$dir/theirs.out" ||
            fail "nothing is said of a folder that cannot be trusted: $(cat "$dir/theirs.out")"
    fi
    # And the system's claim is in no folder that others can write.
    chmod 777 "$dir/run"
    refuse_second
    says "$dir/run is no folder that only root can write"
    chmod 755 "$dir/run"
    start_daemon
else
    say "(daemons of other users are left out: this needs root, setpriv and a build that they may read)"
fi
stop_daemon
