#!/bin/sh
# Several GPUs: which one comes first for a program, and what users, rules and launchers say about it.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"

# on NAME: the GPU where that program is
on() {
    take_status
    app_number "$(pid_of "$1")" gpu
}

# expect_on GPU NAME WHY: there, and status says why
expect_on() {
    await_ready "$2"
    [ "$(on "$2")" = "$1" ] || fail "$2 is on GPU $(on "$2") instead of $1"
    grep -q "$3" "$dir/status.json" && app_has "$(pid_of "$2")" "\"placed\":\"[^\"]*$(echo "$3" | tr -d ' ')" ||
        fail "$2 is there for another reason than \"$3\""
}

start() {
    start_name=$1
    shift
    app "$start_name" "$@" --bytes 24M --allocs 1 --iterations 4 --seed 1 --until "$dir/enough"
}

end() {
    touch "$dir/enough"
    expect_pass "$@"
    rm "$dir/enough"
    expect_empty
}

start_daemon --gpu all --rule 'command=gm_worker_proc* place=off'

# Four that take device 0: two and two. They come at the same time.
for who in a b c d; do start "$who" linked; done
for who in a b c d; do await_ready "$who"; done
where=$(for who in a b c d; do on "$who"; done | sort | tr '\n' ' ')
[ "$where" = "0 0 1 1 " ] || fail "four programs are on GPUs $where"
"$ctl" status > "$dir/table" || fail "mux-ctl status failed"
grep -q "most multiprocessors left" "$dir/table" || fail "the table does not say why: $(cat "$dir/table")"
end a b c d

# What the user set stays: one device that one, several in another order. One that takes the second has it.
start free linked
expect_on 0 free "most multiprocessors left"
CUDA_VISIBLE_DEVICES=0
export CUDA_VISIBLE_DEVICES
start one linked
expect_on 0 one "only GPU"
CUDA_VISIBLE_DEVICES=0,1
start both dlsym
expect_on 1 both "most multiprocessors left"
CUDA_VISIBLE_DEVICES=0,1,-1,7
start more linked
expect_on 1 more "most multiprocessors left"
unset CUDA_VISIBLE_DEVICES

# Nobody is placed whom a launcher, a rule or itself forbids it.
export LOCAL_RANK=0
start ranked linked
expect_on 0 ranked "launcher"
unset LOCAL_RANK
export GPUMUX_PLACE=off
start off linked
expect_on 0 off "placement is off"
unset GPUMUX_PLACE
start ruled proc
expect_on 0 ruled "placement is off"
end free one both more ranked off ruled

# Lists that name nothing, or a device twice: the driver says to them what it says without gpumux.
for list in "" -1 0,0 0,1,0 GPU-00000000-0000-0000-0000-000000000000 MIG-GPU-0/1/0 7,0 ,0; do
    export CUDA_VISIBLE_DEVICES="$list"
    native bare linked --bytes 24M --allocs 1 --iterations 2
    await bare
    before="$code $line"
    start none linked
    await none
    unset CUDA_VISIBLE_DEVICES
    [ "$code" != 0 ] && [ "${before#* * }" != "" ] && [ "$(echo "$before" | sed 's/seconds=[^ ]*//')" = \
        "$(echo "$code $line" | sed 's/seconds=[^ ]*//')" ] || fail "\"$list\": $code $line, without gpumux $before"
done
CUDA_VISIBLE_DEVICES=$(seq -s , 0 9999)
export CUDA_VISIBLE_DEVICES
start many linked
await_ready many
end many
unset CUDA_VISIBLE_DEVICES

# A program on both, and one that starts others: they see all GPUs, and its children begin anew.
app two linked --mode devices --bytes 24M --allocs 1 --iterations 4 --seed 1
app parent linked --mode exec --bytes 24M --allocs 1 --iterations 4 --seed 1
app forks linked --mode fork --bytes 24M --allocs 1 --iterations 2 --seed 1
expect_pass two parent forks
expect_empty

# Processes of one program share the GPUs out by number: however many there are before, each has another one.
cat > "$dir/ranks.py" << 'END'
import ctypes, multiprocessing, sys

def look(rank, names):
    cuda = ctypes.CDLL("libcuda.so.1")
    device, text = ctypes.c_int(), ctypes.create_string_buffer(64)
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), rank) == 0
    assert cuda.cuDeviceGetName(text, 64, device) == 0
    names.put(text.value)
    names.join()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    names = context.JoinableQueue()
    ranks = [context.Process(target=look, args=(rank, names)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    seen = {names.get(timeout=60), names.get(timeout=60)}
    for rank in ranks:
        names.task_done()
    for rank in ranks:
        rank.join()
    sys.exit(len(seen) != 2)
END
if [ "${GM_LINKED:-}" != 1 ]; then
    for way in spawn fork forkserver; do
        env LD_PRELOAD="$shim" python3 "$dir/ranks.py" "$way" || fail "two ranks ($way) have the same GPU"
    done
fi

# A daemon that does not answer holds nobody for long.
stop daemon
begun=$(date +%s%N)
start alone linked --mode nvml
await alone
took=$((($(date +%s%N) - begun) / 1000000))
kill -CONT "$(pid_of daemon)"
say "beside a stopped daemon: code $code after $took ms"
[ "$took" -lt 20000 ] || fail "a stopped daemon held a program for $took ms"
stop_daemon

# --place off
start_daemon --gpu all --place off
for who in a b; do
    start "$who" linked
    expect_on 0 "$who" "placement is off"
done
end a b
stop_daemon
