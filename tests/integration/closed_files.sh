#!/bin/sh
# gpumuxd and mux-ctl are started with standard descriptors closed, as some launchers do: they work and end as ever, and
# write no message into a file or a connection of theirs. And nothing that they open is there in what they execute.
. "$(dirname "$0")/lib.sh"

# closed "REDIRECTIONS" COMMAND...
closed() {
    closed_so=$1
    shift
    sh -c "exec \"\$@\" $closed_so" sh "$@"
}

# The files beyond the three that are not closed by exec.
kept_open() {
    for kept_file in "/proc/$1/fdinfo"/*; do
        [ "$(basename "$kept_file")" -gt 2 ] || continue
        case $(sed -n 's/^flags:[^0-9]*//p' "$kept_file" 2> /dev/null) in
        "" | *2?????? | *3?????? | *6?????? | *7??????) ;;
        *) readlink "/proc/$1/fd/$(basename "$kept_file")" ;;
        esac
    done
}

for so in '2>&-' '0<&- 1>&- 2>&-' '0<&-'; do
    spawn daemon sh -c "exec \"\$@\" $so" sh "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 160M \
        --pinned 512M --slice 50ms --idle 50ms --log-level debug
    within "$patience" daemon_is_up_or_dead || fail "$so: the daemon does not answer"
    ! has_ended daemon || fail "$so: the daemon did not start"
    app one linked --bytes 96M --iterations 3 --until "$dir/enough" --seed 1
    app two proc --bytes 96M --iterations 3 --until "$dir/enough" --seed 2
    await_switches 3
    kept=$(kept_open "$(pid_of daemon)")
    [ -z "$kept" ] || fail "a program that the daemon executed would have $kept"
    closed "$so" "$ctl" status > "$dir/table.out" || fail "$so: mux-ctl status ended with $?"
    expect_pass one two
    rm -f "$dir/enough"
    expect_empty
    stop_daemon
done

# What mux-ctl run executes finds its descriptors as they were, and no other. ls lists its own: those of a shell would
# have the ends of a pipe among them now and then.
start_daemon
ls /proc/self/fd > "$dir/bare.out" < /dev/null
"$ctl" run -- ls /proc/self/fd > "$dir/run.out" < /dev/null || fail "run failed"
cmp -s "$dir/bare.out" "$dir/run.out" || fail "a program that mux-ctl runs has the files $(tr '\n' ' ' < "$dir/run.out")"
closed '2>&-' "$ctl" run -- sh -c '[ ! -e /proc/$$/fd/2 ]' || fail "standard error is not closed as it was"
stop_daemon
