#!/bin/sh
# sh tests/containers.sh BUILD [ROOT]: programs in containers share the simulated GPU, as root, with Podman and what mux-ctl
# cdi writes: with both devices, as two users, seen from outside by pid, user, name and container; and a container outlives
# the daemon. ROOT is a folder that debootstrap has made; without it one is made, which takes minutes. Not in the normal run: it
# needs Podman, root, and Debian's archive. Nothing of the system's Podman and its CDI documents is touched.
set -u
build=$(cd "${1:?usage: containers.sh BUILD [ROOT]}" && pwd) || exit 2
if [ -z "${GM_CONTAINERS_INSIDE:-}" ]; then # what is mounted is seen by this test alone, and gone with it
    GM_CONTAINERS_INSIDE=1 exec unshare --mount sh "$0" "$@"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/gm-containers.XXXXXX") || exit 2
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2> /dev/null; pod rm -af -t 0 > /dev/null 2>&1; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
export GPUMUX_SOCKET="$work/run/gpumux.sock" CONTAINERS_CONF="$work/containers.conf"
. "$(dirname "$0")/sharing.sh"

pod() {
    podman ${runtime:+--runtime "$runtime"} --root "$work/storage" --runroot "$work/runroot" "$@"
}

# in_container DEVICE OPTION...: the options of Podman that a program on the simulated GPU needs.
in_container() {
    device=$1
    shift
    pod run --rm --device "gpumux.dev/gpu=$device" -v "$work/bin:/work:ro" -v "$work/sim:$work/sim" -e SIMCUDA_DIR -e SIMCUDA_MEMORY \
        -e LD_LIBRARY_PATH=/work "$@"
}

mkdir "$work/run" "$work/bin" "$work/storage" "$work/runroot"
cp -P "$build"/tests/simcuda/*.so* "$build/tests/programs/gm_worker" "$work/bin"
cat > "$CONTAINERS_CONF" << 'END_OF_CONF'
[containers]
default_ulimits = []
netns = "host"
[engine]
events_logger = "file"
cgroup_manager = "cgroupfs"
END_OF_CONF
root=${2:-$work/root}
[ -n "${2:-}" ] || debootstrap --variant=minbase bookworm "$root" > "$work/said" 2>&1 || fail "$(tail -n 5 "$work/said")"
runtime=
tar -C "$root" -c . | pod import - trial > "$work/said" 2>&1 || fail "podman import: $(cat "$work/said")"
for runtime in "" runc; do # crun wants one kind of control groups
    pod run --rm trial true > "$work/said" 2>&1 && break
done
[ ! -s "$work/said" ] || fail "podman runs no container here: $(cat "$work/said")"
mkdir -p /etc/cdi && mount -t tmpfs tmpfs /etc/cdi || exit 2
"$ctl" cdi > /etc/cdi/gpumux.json || fail "mux-ctl cdi"
start_daemon

echo "# podman run --device gpumux.dev/gpu=env, and =preload-file as another user"
in_container env trial /work/gm_worker --bytes 192M --seconds 8 --seed 1 > "$work/1.out" 2>&1 & one=$!
in_container preload-file --user 1234:1234 trial env -u LD_PRELOAD /work/gm_worker --bytes 192M --seconds 8 --seed 2 > "$work/2.out" 2>&1 & two=$!
within are_there 2 || fail "two programs do not share: $(cat "$work/1.out" "$work/2.out")"
"$ctl" status
"$ctl" metrics | grep '^gpumux_app_resident_bytes' | tee "$work/metrics"
for user in root 1234; do
    grep -qE "user=\"$user\",command=\"gm_worker\",container=\"[0-9a-f]{64}\"" "$work/metrics" || fail "no container of $user"
done
for pid in $("$ctl" ps -q); do
    grep -q gm_worker "/proc/$pid/comm" || fail "pid $pid is not the program's out here"
done
both_pass $one $two

echo "# a container that is there before the daemon that its program meets"
in_container preload-file --name long trial sleep 600 > /dev/null 2>&1 &
within pod exec long true 2> /dev/null || fail "the container does not start"
kill "$daemon"
wait "$daemon"
start_daemon
pod exec long /work/gm_worker --bytes 192M --seconds 2 > "$work/3.out" 2>&1 & three=$!
within are_there 1 || fail "after the restart: $(cat "$work/3.out")"
wait $three || fail "after the restart: $(cat "$work/3.out")"
grep '^PASS .*mismatches=0 ' "$work/3.out"
pod kill long > /dev/null
echo "containers: they share"
