#!/bin/sh
# Bad input to gpumuxd and mux-ctl: one clear line on standard error, a non-zero exit code, and nothing half
# started: no socket, no lock, no word to the service manager. A bad client: a closed session with the reason, and
# everybody else goes on.
. "$(dirname "$0")/lib.sh"
daemon=$BUILD/daemon/gpumuxd
failures=0
# What is configured on this machine is not what is tested.
export XDG_CONFIG_HOME="$dir/config" XDG_RUNTIME_DIR="$dir/runtime"
mkdir "$dir/config" "$dir/runtime" "$dir/place" || exit 2
unset NOTIFY_SOCKET

ok() {
    echo "ok    $*"
}

bad() {
    echo "FAIL  $*"
    sed 's/^/      | /' "$dir/stderr"
    failures=$((failures + 1))
}

# expect CODE TEXT COMMAND...: it ends with CODE, with one line on standard error that holds TEXT, and nothing on
# standard output. $what names the case.
expect() {
    expect_code=$1 expect_text=$2
    shift 2
    timeout 300 "$@" > "$dir/stdout" 2> "$dir/stderr"
    code=$?
    if [ "$code" -ne "$expect_code" ]; then
        bad "$what: ended with $code, not $expect_code"
    elif [ "$(wc -l < "$dir/stderr")" -ne 1 ]; then
        bad "$what: $(wc -l < "$dir/stderr") lines on standard error"
    elif ! grep -qF -- "$expect_text" "$dir/stderr"; then
        bad "$what: does not say \"$expect_text\""
    elif [ -s "$dir/stdout" ]; then
        bad "$what: writes to standard output"
    else
        ok "$what: $(sed 's/^[0-9T:.Z-]* //' "$dir/stderr")"
    fi
}

# refuses TEXT OPTION...: the daemon does not start for this reason, and leaves nothing in its place.
refuses() {
    refuses_text=$1
    shift
    expect 1 "$refuses_text" "$daemon" "$@"
    left=$(ls -A "$dir/place")
    [ -z "$left" ] || bad "$what: left $left behind"
    rm -rf "$dir/place" && mkdir "$dir/place"
}

place=$dir/place/s

# --- options ---

what="unknown option"
refuses "unknown option --budget=1G" --socket "$place" --budget=1G
what="option without its value"
refuses "--gpu-budget needs a value" --socket "$place" --gpu-budget
what="a word that is no option"
refuses "\"start\" is no option" --socket "$place" start
what="malformed size"
refuses "--gpu-budget: \"12Q\" is not a size" --socket "$place" --gpu-budget 12Q
what="negative size"
refuses "--pinned: \"-1G\" is not a size" --socket "$place" --pinned=-1G
what="size of nothing"
refuses "--pinned: \"0\" is out of range" --socket "$place" --pinned 0
what="size beyond 63 bits"
refuses "out of range" --socket "$place" --gpu-budget 99999999999T
what="percentage above 100"
refuses "\"101%\" is out of range: from 1% to 100%" --socket "$place" --gpu-budget 101%
what="malformed time"
refuses "--slice: \"soon\" is not a time" --socket "$place" --slice soon
what="unknown word"
refuses "--fair: \"all\" is not one of users|programs" --socket "$place" --fair all
what="unknown class"
refuses "--best-class: \"fast\" is not auto, latency, interactive or batch" --socket "$place" --best-class fast
what="a rule for nobody"
refuses "--rule: user: there is no user \"-1\"" --socket "$place" --rule "user=-1 paused"
what="malformed number"
refuses "--max-apps: \"many\" is not a number" --socket "$place" --max-apps many
what="--user without XDG_RUNTIME_DIR"
expect 1 "--user needs XDG_RUNTIME_DIR" env -u XDG_RUNTIME_DIR "$daemon" --user
what="--user where XDG_RUNTIME_DIR leads nowhere"
expect 1 "set XDG_RUNTIME_DIR to a directory of yours" env XDG_RUNTIME_DIR="$dir/nowhere/else" "$daemon" --user
what="status without a daemon, and no place for one of the user's"
[ -e /run/gpumux/gpumux.sock ] ||
    expect 3 "which says what to set" env -u XDG_RUNTIME_DIR -u GPUMUX_SOCKET "$ctl" status
what="status without a daemon at a place of the user's choice"
expect 3 "start one there, with \`gpumuxd --socket PATH\`" "$ctl" --socket "$dir/none" status

# --- the configuration file ---

conf=$dir/gpumux.conf
what="missing configuration file"
refuses "$dir/none: cannot be read: No such file" --socket "$place" --config "$dir/none"
what="a folder as configuration file"
refuses "$dir: cannot be read: Is a directory" --socket "$place" --config "$dir"
printf '# mine\ngpu = 0\nbudget = 1G\n' > "$conf"
what="unknown name in the file"
refuses "$conf:3: no option has the name \"budget\"" --socket "$place" --config "$conf"
printf 'gpu-budget = 1X\n' > "$conf"
what="malformed size in the file"
refuses "$conf:1: gpu-budget: \"1X\" is not a size" --socket "$place" --config "$conf"
printf 'gpu\n' > "$conf"
what="a line that is none"
refuses "$conf:1: expected \"name = value\"" --socket "$place" --config "$conf"
mkdir "$dir/config/gpumux" && printf 'idle = never\n' > "$dir/config/gpumux/gpumux.conf"
what="the user's own file"
refuses "gpumux/gpumux.conf:1: idle: \"never\" is not a time" --user --socket "$place"
rm -r "$dir/config/gpumux"

# --- the socket's place ---

what="no such folder"
refuses "the directory of the socket $place/deeper/s does not exist: make it, or choose another --socket" --socket "$place/deeper/s"
what="unwritable folder"
if [ "$(id -u)" != 0 ]; then
    chmod 555 "$dir/place"
    refuses "cannot write in its directory: Permission denied" --socket "$place"
elif command -v setpriv > /dev/null; then
    mkdir "$dir/mine" && chmod 755 "$dir" "$dir/mine"
    if setpriv --reuid 65534 --clear-groups -- "$daemon" --version > /dev/null 2>&1; then
        expect 1 "cannot write in its directory: Permission denied" \
            setpriv --reuid 65534 --clear-groups -- "$daemon" --socket "$dir/mine/s"
    else
        expect 1 "cannot write in its directory" "$daemon" --socket /proc/gpumux.sock
    fi
    chmod 700 "$dir"
else
    expect 1 "cannot write in its directory" "$daemon" --socket /proc/gpumux.sock
fi
what="a path that is too long"
long=$(printf '%0120d' 0)
refuses "and at most 107 can be used: choose a shorter --socket" --socket "$dir/place/$long"
what="a path that is not a socket"
echo precious > "$dir/file"
expect 1 "is there and is not a socket: remove it" "$daemon" --socket "$dir/file"
[ "$(cat "$dir/file")" = precious ] || bad "$what: the file is not what it was"
[ ! -e "$dir/file.lock" ] || bad "$what: left its lock behind"

# --- memory ---

kib_of() { # NAME: a number of /proc/meminfo
    sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo
}
what="more pinned memory than there is"
refuses "--pinned 100 TiB is more than the " --socket "$place" --pinned 100T
what="pinned memory that swap would have to be counted for"
refuses ": lower --pinned" --socket "$place" --pinned "$(($(kib_of MemTotal) + 1))K" --paged 2M
what="more paged memory than there is"
refuses ": lower --paged" --socket "$place" --paged 100T
what="pinned and paged memory that do not fit together"
refuses " more than the " --socket "$place" --pinned "$(($(kib_of MemTotal) / 2))K" \
    --paged "$(($(kib_of MemTotal) / 2 + $(kib_of SwapTotal) + 2048))K"

# --- the tiers below it ---

small="--gpu-budget 160M"
what="a disk without a size"
refuses "is not a folder and a size" --socket "$place" --disk "$dir"
what="a disk in a folder that is not there"
refuses "--disk $dir/none: cannot make a file there: No such file or directory; make the folder first" \
    --socket "$place" $small --pinned 288M --disk "$dir/none:64M"
what="a disk where no files can be"
refuses "; name a folder on a disk" \
    --socket "$place" $small --pinned 288M --disk /proc:64M
what="a disk in a file"
echo precious > "$dir/no-folder"
refuses "--disk $dir/no-folder: cannot make a file there: Not a directory" \
    --socket "$place" $small --pinned 288M --disk "$dir/no-folder:64M"
[ "$(cat "$dir/no-folder")" = precious ] || bad "$what: the file is not what it was"
what="too little pinned memory for what lies below"
expect 1 "--pinned of 96 MiB is too little for the tiers below it, which are reached through it: give it 224 MiB" \
    "$daemon" --log-level error --socket "$place" $small --pinned 100M --paged 64M
mkdir "$dir/read-only"
if unshare -m mount -t tmpfs -o ro none "$dir/read-only" 2> /dev/null; then
    what="a disk that cannot be written"
    expect 1 "--disk $dir/read-only: cannot make a file there: Read-only file system; name a folder" \
        unshare -m sh -c 'mount -t tmpfs -o ro none "$0" && exec "$@"' "$dir/read-only" \
        "$daemon" --socket "$place" $small --pinned 288M --disk "$dir/read-only:64M"
fi

# --- the GPU ---

what="a budget above the device"
refuses "lower --gpu-budget" --socket "$place" --gpu-budget 100T
what="a GPU that is not there"
refuses "there is no GPU 9" --socket "$place" --gpu 9
mkdir "$dir/broken" && : > "$dir/broken/libcuda.so.1"
what="no CUDA driver that loads"
expect 1 "no CUDA driver (libcuda.so.1)" env LD_LIBRARY_PATH="$dir/broken" "$daemon" --socket "$place"
[ -z "$(ls -A "$dir/place")" ] || bad "$what: left $(ls -A "$dir/place") behind"

# --- a second daemon, a stale socket, a stop ---

start_daemon
pid=$(pid_of daemon)
what="a second daemon on the same socket"
expect 1 "another gpumuxd (pid $pid) serves $GPUMUX_SOCKET: stop it" "$daemon" --socket "$GPUMUX_SOCKET"
what="the first daemon after the second"
if is_up; then ok "$what: answers"; else bad "$what: does not answer"; fi
what="a second daemon whose lock file is gone"
mv "$GPUMUX_SOCKET.lock" "$dir/lock.away"
expect 1 "another program listens on $GPUMUX_SOCKET" "$daemon" --socket "$GPUMUX_SOCKET"
mv "$dir/lock.away" "$GPUMUX_SOCKET.lock"
# --- clients ---

# client HEX...: connect, send each message, print the reason of the refusal that comes back.
client() {
    perl -MSocket -e '
        socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!\n";
        connect($s, sockaddr_un($ENV{GPUMUX_SOCKET})) or die "connect: $!\n";
        $SIG{PIPE} = "IGNORE";
        $SIG{ALRM} = sub { die "no answer\n" };
        alarm 200;
        send($s, pack("H*", $_), 0) for @ARGV;
        for (;;) {
            defined recv($s, my $got, 20000, 0) or die "recv: $!\n";
            length $got or last;
            my ($length, $version, $type, $count, $none, $reason) = unpack("LSSLLL", $got);
            print "reason $reason: ", unpack("Z*", substr($got, 24)), "\n" if $type == 17;
        }
        print "closed\n"' "$@" > "$dir/stderr" 2>&1
}

# client_is TEXT HEX...: the client is refused with this text, and the session is closed.
client_is() {
    client_text=$1
    shift
    client "$@"
    if grep -qF -- "$client_text" "$dir/stderr" && [ "$(tail -n 1 "$dir/stderr")" = closed ]; then
        ok "$what: $(head -n 1 "$dir/stderr")"
    else
        bad "$what: does not say \"$client_text\" and close"
    fi
}

# The bytes are those of a little-endian machine, which is all that CUDA has.
me=$(printf '%0120d' 0 | sed 's/^0000/6d65/') # "me", 60 bytes of the 64
if command -v perl > /dev/null; then
    none=$(printf "%0160d" 0) # no group, and nothing said of its size
    wire=$("$ctl" version | sed 's/.*(protocol \([0-9]*\))$/\1/')
    of=$(printf '%02x00' "$wire") # what a message's header says of that
    body="0100000000000000$me"00000000$none
    versions="${of}${of}00000000" # that it speaks: this one
    hello="b0000000${of}0100""0000000000000000$body$versions"
    what="a client of another protocol version"
    client_is "the client speaks protocol version 99, this gpumuxd $wire" "b000000063000100""0000000000000000${body}6300630000000000"
    what="an unknown message"
    client_is "unknown message type" "10000000${of}6300""0000000000000000"
    what="half a header"
    client_is "bad message" "1000"
    what="a message of the daemon's own"
    client_is "bad message (CLOSE)" "28000000${of}1400""0000000000000000""000000000000000000000000000000000000000000000000"
    what="an app's message before HELLO"
    client_is "bad message (WANT)" "18000000${of}0400""0000000000000000""0000000000000000"
    what="HELLO twice"
    client_is "bad message (HELLO): message not allowed in this state" "$hello" "$hello"
    what="a role that is none"
    client_is "unknown role 7" "b0000000${of}0100""0000000000000000""07000000""00000000$me"00000000$none$versions
    what="an allocation with a flag that is none"
    client_is "an allocation that cannot be" "$hello" \
        "30000000${of}0200""0000000000000000""0100000000000000""0000000001000000""0000200000000000""00000000""02000000"
    what="opening what cannot be, at an odd address"
    client_is "an opening that cannot be" "$hello" \
        "40000000${of}0a00""0000000000000000""0100000000000000""0100000000000000$(printf '%064d' 0)"
    what="a context on a GPU that is not there"
    client_is "a GPU that is not there" "$hello" \
        "20000000${of}0d00""0000000000000000""0100000000000000""0700000000000000"
    what="sharing with a message too short"
    client_is "bad message (SHARE)" "$hello" "18000000${of}0900""0000000000000000""0100000000000000"
    what="a client that says nothing"
    client_is "no HELLO within 5 s"
else
    echo "      (no perl: the bad clients are left out; unit_session has them)"
fi
what="the daemon after all of them"
if has_ended daemon; then bad "$what: ended"; elif within "$patience" is_empty; then ok "$what: answers, knows no app"; else bad "$what"; fi

# --- mux-ctl ---

what="no command"
expect 1 "what to do?" "$ctl"
what="unknown command"
expect 1 "unknown command \"stauts\": did you mean status?" "$ctl" stauts
what="unknown option"
expect 1 "unknown option --jason: did you mean --json?" "$ctl" status --jason
what="unknown option before the command"
expect 1 "unknown option --json" "$ctl" --json status
what="option without its value"
expect 1 "--socket needs a value" "$ctl" status --socket
what="one word too many"
expect 1 "\"now\" is one word too many" "$ctl" status now
if [ -w /dev/full ]; then
    full='"$@" > /dev/full'
    for words in --help --version version "status --help"; do
        what="$words where nothing can be written"
        expect 1 "cannot be written: No space left on device" sh -c "$full" sh "$ctl" $words
    done
    what="gpumuxd --help where nothing can be written"
    expect 1 "the help cannot be written: No space left on device" sh -c "$full" sh "$daemon" --help
else
    echo "      (no /dev/full: help that cannot be written is left out)"
fi
what="malformed time"
expect 1 "--watch: \"often\" is not a time" "$ctl" status --watch often
what="a word for log"
expect 1 "\"now\" is one word too many" "$ctl" log now
what="a number of entries that is none"
expect 1 "-n: \"many\" is not a number of entries" "$ctl" log -n many
what="set without a program"
expect 1 "set: which program?" "$ctl" set class=batch
what="set without a setting"
expect 1 "set: what? say class=" "$ctl" set 1
what="run without a program"
expect 1 "which program?" "$ctl" run --
what="run with an option of ours"
expect 1 "unknown option --fast" "$ctl" run --fast true
# --- the ten mistakes of every day: one line each, which says what to do ---

what="1: a typo in a verb"
expect 1 "unknown command \"pasue\": did you mean pause?" "$ctl" pasue 812
what="2: a wrong pid"
expect 1 "pid $$ is no program that shares the GPU: mux-ctl ps lists them" "$ctl" pause $$
what="3: the daemon is down"
expect 3 "gpumuxd is not running ($dir/none: No such file or directory): start one there, with" "$ctl" --socket "$dir/none" status
what="4: no permission"
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null && setpriv --reuid 65534 --clear-groups -- "$ctl" version > /dev/null 2>&1; then
    chmod 755 "$dir"
    expect 1 "config: only root and the daemon's own user may have it read its configuration" \
        setpriv --reuid 65534 --clear-groups -- "$ctl" config reload
    chmod 600 "$GPUMUX_SOCKET"
    expect 1 "Permission denied): ask its owner, or start one with gpumuxd --user" \
        setpriv --reuid 65534 --clear-groups -- "$ctl" status
    chmod 666 "$GPUMUX_SOCKET"
    chmod 700 "$dir"
fi
what="5: no GPU"
expect 1 "mux-ctl doctor says what is wrong" env SIMCUDA_FAIL=cuInit:1=100 SIMCUDA_DIR="$dir/place" \
    "$daemon" --socket "$dir/other" --pinned 64M
what="6: a bad size"
expect 1 "--cap: \"12Q\" is not a size (for example 6G), nor none" "$ctl" run --cap 12Q -- true
what="7: a folder that is not there"
expect 1 "cannot make a file there: No such file or directory; make the folder first" env SIMCUDA_DIR="$dir/place" \
    "$daemon" --log-level error --socket "$dir/other" $small --pinned 288M --disk "$dir/none:1G"
what="8: an old shim"
if command -v perl > /dev/null; then
    old=$(printf '%02x00' $((wire - 1)))
    client_is "install the same gpumux version of both" "b0000000${old}0100""0000000000000000$body${old}${old}00000000"
fi
what="9: a second daemon"
expect 1 "another gpumuxd (pid $pid) serves $GPUMUX_SOCKET: stop it, or choose another --socket" "$daemon" --socket "$GPUMUX_SOCKET"
what="10: an unknown key"
printf 'gpu-bugdet = 1G\n' > "$conf"
expect 1 "$conf:1: no option has the name \"gpu-bugdet\": did you mean gpu-budget?" "$daemon" --check --config "$conf"
rm -rf "$dir/place" && mkdir "$dir/place"

lib=$shim
[ -f "$lib" ] || lib=$BUILD/tests/simcuda/libcuda.so.1 # a sanitizer build has no shim; nothing is started here
what="run of what is not there"
expect 127 "No such file" env GPUMUX_LIB="$lib" "$ctl" run -- "$dir/none"
what="run of what cannot be executed"
expect 126 "Permission denied" env GPUMUX_LIB="$lib" "$ctl" run -- "$dir/gpumux.conf"
what="a shim that is not there"
expect 1 "GPUMUX_LIB names $dir/none" env GPUMUX_LIB="$dir/none" "$ctl" run -- true

# --- a daemon that is stopped ---

if command -v perl > /dev/null; then
    stop daemon
    perl -MSocket -e 'for (1 .. 1000) { # none waits, and all of them fill the queue
        socket(my $s, AF_UNIX, SOCK_SEQPACKET | 04000, 0) or die "socket: $!\n";
        connect($s, sockaddr_un($ENV{GPUMUX_SOCKET})) or exit;
        push @all, $s }'
    what="a stopped daemon whose queue is full"
    expect 1 "gpumuxd does not answer" "$ctl" status
    what="a daemon that was stopped for 2 s"
    spawn patient "$ctl" status
    sleep 2
    kill -CONT "$pid"
    await patient
    if [ "$code" = 0 ]; then ok "$what"; else bad "$what: $line"; fi
fi

# --- a stop, a crash, and what is left ---

what="SIGTERM"
kill -TERM "$pid"
within "$patience" has_ended daemon
if [ "$(cat "$dir/daemon.code" 2> /dev/null)" != 0 ]; then
    bad "$what: the daemon ended with $(cat "$dir/daemon.code" 2> /dev/null)"
elif [ -e "$GPUMUX_SOCKET" ] || [ -e "$GPUMUX_SOCKET.lock" ]; then
    bad "$what: left its socket or lock"
else
    ok "$what: ends with 0, leaves nothing"
fi
what="status without a daemon"
expect 3 "gpumuxd is not running ($GPUMUX_SOCKET: No such file or directory)" "$ctl" status
start_daemon
kill -KILL "$(pid_of daemon)"
within "$patience" has_ended daemon
what="status with a dead daemon's socket"
[ -S "$GPUMUX_SOCKET" ] || bad "$what: there is no socket"
expect 3 "gpumuxd is not running ($GPUMUX_SOCKET: Connection refused)" "$ctl" status
start_daemon
what="a dead daemon's socket"
if is_up; then ok "$what: is replaced"; else bad "$what: stays"; fi
stop_daemon

[ "$failures" -eq 0 ] || fail "$failures cases"
say "all cases passed"
