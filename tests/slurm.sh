#!/bin/sh
# sh tests/slurm.sh BUILD [USER]: Slurm's jobs share the simulated GPU by --gpumux, as root: two jobs with gres/shard, one of USER if
# said, with class and cap; a batch job and its steps; --gpumux=off; default= of plugstack.conf; mistakes. Slurm and munge are
# started here, on ports and with files of their own. Not in the normal run: it needs root, munged, slurmctld, slurmd and srun
# (Debian: munge, slurmctld, slurmd, slurm-client), and libslurm-dev for the build.
set -u
build=$(cd "${1:?usage: slurm.sh BUILD [USER]}" && pwd) || exit 2
user=${2:-root}
[ -f "$build/packaging/slurm/spank.so" ] || { echo "slurm: this build has no plugin: install libslurm-dev before" && exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gm-slurm.XXXXXX") || exit 2
pids=
clean_up() {
    for name in slurmd slurmctld; do
        pid=$(cat "$work/$name.pid" 2> /dev/null) && kill "$pid" 2> /dev/null || continue
        for try in $(seq 50); do kill -0 "$pid" 2> /dev/null && sleep 0.2; done # they are no children of this shell
    done
    [ -z "$pids" ] || kill $pids 2> /dev/null
    wait
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP
export SLURM_CONF="$work/slurm.conf" GPUMUX_SOCKET="$work/gpumux.sock"
. "$(dirname "$0")/sharing.sh"
worker=$build/tests/programs/gm_worker

# plugin ARGUMENT...: what plugstack.conf says of it.
plugin() {
    echo "optional $build/packaging/slurm/spank.so $*" > "$work/plugstack.conf"
}

# expect FILE LINE...: it has them.
expect() {
    file=$1
    shift
    for line in "$@"; do grep -qxF -- "$line" "$file" || fail "no line \"$line\": $(cat "$file")"; done
}

mkdir -m 700 "$work/munge" "$work/state" "$work/spool"
touch "$work/gpu0"
chmod 755 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=128 count=1 2> /dev/null && chmod 600 "$work/munge/key"
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge.log" --seed-file="$work/munge/seed" > "$work/munged.log" 2>&1 &
pids="$pids $!"
host=$(hostname -s)
cat > "$SLURM_CONF" << END_OF_CONF
ClusterName=trial
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
SlurmctldPort=26817
SlurmdPort=26818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
PlugStackConfig=$work/plugstack.conf
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=500 Gres=gpu:1,shard:8
PartitionName=all Nodes=$host Default=YES State=UP OverSubscribe=YES:8
END_OF_CONF
printf 'Name=gpu File=%s\nName=shard Count=8 File=%s\n' "$work/gpu0" "$work/gpu0" > "$work/gres.conf"
plugin "library=$build/shim/libgpumux.so"
start_daemon
pids="$pids $daemon"
within [ -S "$work/munge/socket" ] || fail "munged does not start"
slurmctld && slurmd || fail "Slurm does not start"
is_idle() { sinfo -h -o %T 2> /dev/null | grep -q idle; }
within is_idle || fail "the node is not there"

echo "# srun --gres=shard:4 --gpumux=...: two jobs at once"
export LD_LIBRARY_PATH="$build/tests/simcuda"
srun --chdir=/ --gres=shard:4 --gpumux=class:interactive,group:g "$worker" --bytes 192M --seconds 6 > "$work/1.out" 2>&1 & one=$!
setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups \
    srun --chdir=/ --gres=shard:4 --gpumux=class:batch,cap:128M "$worker" --bytes 192M --seconds 6 > "$work/2.out" 2>&1 & two=$!
within are_there 2 || fail "two jobs do not share: $(cat "$work/1.out" "$work/2.out")"
"$ctl" ps --long | tee "$work/ps"
grep -q ' interactive .*group g' "$work/ps" && grep -q " $user .* batch .*cap 128 MiB" "$work/ps" || fail "their settings: see above"
both_pass $one $two

echo "# sbatch, and its steps"
cat > "$work/job" << 'END_OF_JOB'
#!/bin/sh
#SBATCH --gpumux=cap:160M
echo "batch $LD_PRELOAD $GPUMUX_CAP"
srun sh -c 'echo "step $LD_PRELOAD $GPUMUX_CAP"'
srun --gpumux=off sh -c 'echo "off $GPUMUX_DISABLE"'
LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6 srun sh -c 'echo "own $LD_PRELOAD"'
END_OF_JOB
sbatch --wait --chdir=/ -o "$work/job.out" "$work/job" > /dev/null || fail "the batch job: $(cat "$work/job.out")"
expect "$work/job.out" "batch $build/shim/libgpumux.so 160M" "step $build/shim/libgpumux.so 160M" "off 1" \
    "own /lib/x86_64-linux-gnu/libm.so.6:$build/shim/libgpumux.so"

echo "# mistakes, and what jobs get that say nothing"
if srun --chdir=/ --gpumux=clas:batch true 2> "$work/said"; then fail "a mistake is taken"; fi
expect "$work/said" 'srun: error: --gpumux: "clas" is unknown: did you mean class:?'
srun --chdir=/ env > "$work/env" || fail "a job that says nothing"
! grep -q libgpumux.so "$work/env" || fail "a job that says nothing shares"
plugin "library=$build/shim/libgpumux.so default=class:batch"
srun --chdir=/ env > "$work/env" || fail "default="
expect "$work/env" GPUMUX_CLASS=batch "LD_PRELOAD=$build/shim/libgpumux.so"
plugin "library=/nowhere/libgpumux.so default=on"
srun --chdir=/ echo ran > "$work/out" 2> "$work/said" || fail "without the library a job does not run"
expect "$work/out" ran
grep -q '/nowhere/libgpumux.so cannot be read on this node: the job runs unshared' "$work/said" || fail "$(cat "$work/said")"
echo "slurm: the jobs share"
