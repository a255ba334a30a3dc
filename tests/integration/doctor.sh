#!/bin/sh
# mux-ctl doctor: what the machine can do, and what is wrong with the command that mends it: with all in order, without a
# daemon, without a driver, with a GPU in a mode for one process, without host frames, and beside a program that does not
# share.
. "$(dirname "$0")/lib.sh"

# doctor CODE COMMAND...: mux-ctl doctor with that in front ends so; its lines are on $dir/said with single blanks.
doctor() {
    expected=$1
    shift
    "$@" "$ctl" doctor > "$dir/table" 2> "$dir/stderr"
    code=$?
    tr -s ' ' < "$dir/table" > "$dir/said"
    [ "$code" = "$expected" ] || fail "doctor ended with $code: $(cat "$dir/table" "$dir/stderr")"
    [ ! -s "$dir/stderr" ] || fail "doctor says: $(cat "$dir/stderr")"
}
# says LINE: that is one.
says() {
    grep -q "$1" "$dir/said" || fail "doctor does not say \"$1\": $(cat "$dir/table")"
}

[ -f "$shim" ] || export GPUMUX_LIB="$BUILD/tests/simcuda/libcuda.so.1" # a sanitizer build has no shim
start_daemon
doctor 0 env
for row in driver gpu 'compute mode' 'host frames' counters library parking mps daemon; do
    says "^$row ok "
done
says '^gpu ok GPU 0: simcuda'
says "^daemon ok gpumuxd .*, pid $(pid_of daemon), up "
says '^budget ok GPU 0: programs may fill 160 MiB'
says '^open files .* for the daemon'
says '^Nothing is wrong.$'
! grep -q 'beside gpumux' "$dir/said" || fail "its own programs are strangers: $(cat "$dir/table")"
[ "$("$ctl" doctor --json | wc -l)" = 1 ] || fail "--json is not one line"
"$ctl" doctor --json | grep -q '^{"schema":1,"wrong":0,"checks":\[{"name":"driver","state":"ok",' || fail "JSON: $("$ctl" doctor --json)"

native stranger linked --bytes 96M --iterations 3 --until "$dir/enough"
await_ready stranger
app own linked --bytes 32M --iterations 3 --until "$dir/enough"
await_ready own
stranger_is_seen() {
    "$ctl" doctor | tr -s ' ' | grep "^beside gpumux note GPU 0: pid $(pid_of stranger) (gm_worker) uses the GPU and does not share it: " > "$dir/seen"
}
stranger_is_seen || fail "who does not share is not seen: $("$ctl" doctor)"
! "$ctl" doctor | grep -q "pid $(pid_of own) " || fail "who shares is a stranger: $("$ctl" doctor)"
# mux-ctl(1) names no member that the JSON lacks
"$ctl" set "$(pid_of own)" weight=2 > "$dir/out" || fail "set: $(cat "$dir/out")" # for the log
for command in status ps doctor trim 'top --once' 'config show' 'log'; do "$ctl" $command --json || fail "$command --json ended with $?"; done > "$dir/json"
sed -n '/^\.SH JSON/,/^\.SS A switch/p' "$BUILD/docs/man/mux-ctl.1" | grep -oE '[a-z]+(_[a-z]+)+' | grep -vxE 'ago_s|unshared_why' | sort -u > "$dir/members" # no switch and no refusal was yet, and NVML answers
[ "$(wc -l < "$dir/members")" -ge 30 ] || fail "mux-ctl(1) names only $(cat "$dir/members")"
while read -r member; do
    grep -q "\"$member\":" "$dir/json" || fail "mux-ctl(1) has $member, which no command prints"
done < "$dir/members"
touch "$SIMCUDA_DIR/nvml-hangs"
doctor 0 timeout 60
says '^nvml note NVML does not answer: what crosses the link is not counted'
! grep -q '^counters' "$dir/said" || fail "it counts what crosses the link: $(cat "$dir/table")"
rm "$SIMCUDA_DIR/nvml-hangs"
touch "$dir/enough"
expect_pass own stranger
mkdir "$dir/bin" && printf '#!/bin/sh\nprintf "LoadState=loaded\\nActiveState=failed\\n"\n' > "$dir/bin/systemctl" && chmod 755 "$dir/bin/systemctl"
doctor 0 env PATH="$dir/bin:$PATH"
says '^keeper note gpumux-keeper.service has failed: '
stop_daemon

# A configuration that the next start refuses.
echo 'slice = 1s' > "$dir/gpumux.conf"
start_daemon --config "$dir/gpumux.conf"
doctor 0 env
says '^configuration ok '
echo "disk = $dir/none:1G" > "$dir/gpumux.conf"
doctor 1 env
says "^configuration WRONG $dir/gpumux.conf:1: --disk $dir/none: cannot make a file there"
stop_daemon

doctor 1 env
says '^daemon WRONG gpumuxd is not running'
says '^ -> sudo systemctl start gpumuxd'
says '^One thing is wrong.$'
doctor 1 env SIMCUDA_COMPUTE_MODE=3
says '^compute mode WRONG GPU 0: EXCLUSIVE_PROCESS: only one process can use it'
says '^ -> sudo nvidia-smi -i GPU-[-0-9a-f]* -c DEFAULT$'
says '^Several things are wrong.$'
doctor 1 env SIMCUDA_NO=host-numa
says '^host frames note GPU 0: pinned memory is registered: '
doctor 1 env SIMCUDA_COMPUTE_MODE=2
says '^compute mode WRONG GPU 0: PROHIBITED: no program can use it'
mkdir "$dir/broken" && : > "$dir/broken/libcuda.so.1" && : > "$dir/broken/libnvidia-ml.so.1"
doctor 1 env LD_LIBRARY_PATH="$dir/broken"
says '^driver WRONG there is no CUDA driver: '
says '^ -> install NVIDIA.s driver: '
doctor 1 env GPUMUX_LIB="$dir/none"
says "^library WRONG GPUMUX_LIB names $dir/none: No such file or directory"
