#!/bin/sh
# Another user opens hundreds of connections that say nothing, and opens them again when they are closed: mux-ctl and
# programs of root are served as ever, mux-ctl of that user gets its turn, and the log says it once a minute at most.
# And one user's programs do not take all places.
. "$(dirname "$0")/lib.sh"
need_stranger
command -v perl > /dev/null || skip "there is no perl"

# crowd NAME: 400 connections of the stranger, until $dir/NAME.end; they touch $dir/NAME.there once all were open, or
# the daemon did not let them.
crowd() {
    spawn "$1" $stranger perl -MSocket -MPOSIX=:errno_h -e '
        my ($path, $there, $end) = @ARGV;
        my @open = (undef) x 400;
        my $opened = 0;
        until (-e $end) {
            for my $s (@open) {
                if (defined $s) { # closed by the daemon?
                    my $n = recv($s, my $got, 20000, MSG_DONTWAIT);
                    undef $s if defined $n && !length $got;
                }
                next if defined $s;
                socket($s, AF_UNIX, SOCK_SEQPACKET | 04000, 0) or die "socket: $!\n"; # it does not wait
                if (connect($s, sockaddr_un($path))) { $opened++ } else { undef $s }
            }
            if ($opened >= 400 && !-e $there) { open(my $f, ">", $there) or die "$there: $!\n" }
            select(undef, undef, undef, 0.01);
        }
        print "PASS opened=$opened\n"' "$GPUMUX_SOCKET" "$dir/$1.there" "$dir/$1.end"
}

is_there() {
    [ -e "$dir/$1.there" ] || has_ended "$1"
}

# The crowd's own user may lose a connection to his crowd before he has asked: then he asks again.
they_ask() {
    $stranger "$ctl" status > /dev/null 2> "$dir/said"
}

start_daemon
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
began=$(date +%s)
crowd one
crowd two
within "$patience" is_there one && within "$patience" is_there two || fail "they do not get in at all"
for i in 1 2 3 4 5 6 7 8 9 10; do
    "$ctl" status > /dev/null 2> "$dir/said" || fail "root's mux-ctl: $(cat "$dir/said")"
    "$ctl" log > /dev/null 2> "$dir/said" || fail "root's mux-ctl: $(cat "$dir/said")"
    within "$patience" they_ask || fail "their own mux-ctl: $(cat "$dir/said")"
    app "root$i" linked --bytes 8M --allocs 1 --iterations 3 --seed "$i"
    stranger_app "theirs$i" --bytes 8M --allocs 1 --iterations 3 --seed "$i"
    expect_pass "root$i" "theirs$i" > /dev/null
    grep -q "^[^ ]* gpumuxd: app [0-9]*: pid $(pid_of "root$i"), " "$dir/daemon.out" || fail "root$i ran without gpumux"
done
touch "$dir/one.end" "$dir/two.end"
for who in one two; do
    await "$who"
    [ "$code" = 0 ] || fail "$who ended with $code: $line"
    say "$who: $line"
done
expect_empty
lasted=$(($(date +%s) - began))
lines=$(grep -c 'user .*(uid 65534, pid [0-9]*): [0-9]* connections of its user are open' "$dir/daemon.out")
say "$lines lines about connections in $lasted s"
[ "$lines" -gt 0 ] || fail "nothing is said about those connections"
[ "$lines" -le $((lasted / 60 + 1)) ] || fail "the log repeats itself"
stop_daemon

# Places: one user has three quarters, all users but root fifteen sixteenths.
start_daemon --max-apps 8
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
for i in 1 2 3 4 5 6 7; do
    stranger_app "many$i" --bytes 8M --allocs 1 --iterations 3 --until "$dir/enough" --seed "$i"
    await_ready "many$i"
done
grep -q 'refused: 6 programs of user 65534 are served already, the most for one user: raise --max-apps' "$dir/daemon.out" ||
    fail "one user has all places"
for i in 1 2; do
    app "own$i" linked --bytes 8M --allocs 1 --iterations 3 --until "$dir/enough" --seed "$i"
    await_ready "own$i"
done
take_status
[ "$(apps)" = 8 ] || fail "$(apps) programs run under gpumux, not 6 and root's 2"
touch "$dir/enough"
expect_pass many1 many2 many3 many4 many5 many6 many7 own1 own2
expect_empty
stop_daemon

# As do places that follow from open files: root has one beside a user who takes all that he gets.
spawn daemon sh -c 'ulimit -n 256 && exec "$0" --socket "$1" --gpu-budget 160M --pinned 256M' "$BUILD/daemon/gpumuxd" "$GPUMUX_SOCKET"
within "$patience" daemon_is_up_or_dead && ! has_ended daemon || fail "no daemon with 256 files"
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
spawn hoard $stranger perl -MSocket -e '
    my ($path, $there, $end, $version) = @ARGV;
    my @open;
    for (1 .. 60) {
        socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
        connect($s, sockaddr_un($path)) or die "connect: $!\n";
        send($s, pack("LSSLLLLa128x16SSx4", 176, $version, 1, 0, 0, 1, 0, "hoard", $version, $version), 0) or die "send: $!\n"; # HELLO
        recv($s, my $got, 20000, 0);
        push @open, $s;
    }
    open(my $f, ">", $there) or die "$there: $!\n";
    select(undef, undef, undef, 0.05) until -e $end;' "$GPUMUX_SOCKET" "$dir/hoard.there" "$dir/hoard.end" \
    "$("$ctl" version | sed 's/.*protocol \([0-9]*\).*/\1/')"
within "$patience" is_there hoard && [ -e "$dir/hoard.there" ] || fail "hoard: $(cat "$dir/hoard.out")"
grep -q 'refused: [0-9]* programs of user 65534 are served already, the most for one user: raise LimitNOFILE' "$dir/daemon.out" ||
    fail "one user has all places that there are files for: $(grep -m 3 refused "$dir/daemon.out")"
app last linked --bytes 8M --allocs 1 --iterations 3
expect_pass last
grep -q "app [0-9]*: pid $(pid_of last), " "$dir/daemon.out" || fail "root has no place beside one user's"
touch "$dir/hoard.end"
await hoard
stop_daemon

# Programs that connect and leave, and whose processes stay, keep their places for a while: that is no way around it.
start_daemon --max-apps 8
chmod 666 "$GPUMUX_SOCKET" "$dir/sim"/*
spawn leavers $stranger perl -MSocket -e '
    my ($path, $there, $end) = @ARGV;
    for (1 .. 12) {
        next if fork();
        socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
        connect($s, sockaddr_un($path)) or die "connect: $!\n";
        send($s, pack("LSSLLLLa128x16SSx4", 176, $ARGV[3], 1, 0, 0, 1, 0, "leaver", $ARGV[3], $ARGV[3]), 0) or die "send: $!\n"; # HELLO
        recv($s, my $got, 20000, 0);
        close($s);
        open(my $f, ">", "$there$$") or die "$there: $!\n";
        select(undef, undef, undef, 0.05) until -e $end;
        exit 0;
    }
    1 while wait() > 0;' "$GPUMUX_SOCKET" "$dir/leaver." "$dir/leavers.end" \
    "$("$ctl" version | sed 's/.*protocol \([0-9]*\).*/\1/')"
have_left() {
    [ "$(ls "$dir"/leaver.* 2> /dev/null | wc -l)" = 12 ] || has_ended leavers
}
within "$patience" have_left
grep -q 'uid 65534): left' "$dir/daemon.out" || fail "none of them was served: $(cat "$dir/leavers.out")"
app root linked --bytes 8M --allocs 1 --iterations 3
expect_pass root
grep -q "app [0-9]*: pid $(pid_of root), " "$dir/daemon.out" || fail "those that left have root's places"
# They ask for places under made-up names: the log says it once a second all the same.
began=$(date +%s)
spawn asker $stranger perl -MSocket -e '
    my ($path, $version) = @ARGV;
    socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
    connect($s, sockaddr_un($path)) or die "connect: $!\n";
    send($s, pack("LSSLLLLa128x16SSx4", 176, $version, 1, 0, 0, 2, 0, "asker", $version, $version), 0) or die "send: $!\n"; # HELLO
    for (1 .. 100) {
        send($s, pack("LSSLLLLa64", 88, $version, 38, 0, 0, 1, 0, "name$_"), 0) or die "send: $!\n"; # RESERVE
        recv($s, my $got, 20000, 0);
        die "no answer\n" unless length $got;
    }
    print "PASS\n"' "$GPUMUX_SOCKET" "$("$ctl" version | sed 's/.*protocol \([0-9]*\).*/\1/')"
await asker
[ "$code" = 0 ] || fail "asker: $line"
lasted=$(($(date +%s) - began))
lines=$(grep -c 'no place for name' "$dir/daemon.out")
[ "$lines" -gt 0 ] && [ "$lines" -le $((2 * lasted + 6)) ] || fail "$lines lines about places that are refused in $lasted s"
touch "$dir/leavers.end"
await leavers
stop_daemon
