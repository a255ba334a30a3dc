#!/bin/sh
# sh tests/packages.sh BUILD [ROOT]: the Debian packages in a fresh Debian 12, as root: installs them with apt, shares the
# simulated GPU between two programs there, upgrades, removes and purges them, and compares all files before and after.
# Where there is systemd-nspawn, it then boots that root and does the same with the service.
# BUILD has the tests. ROOT is a folder that debootstrap has made; without it one is made, which takes minutes. Not in
# the normal run: it needs Debian's archive.
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: packages.sh BUILD [ROOT]}" && pwd) || exit 2
if [ -z "${GM_PACKAGES_INSIDE:-}" ]; then # what is mounted is seen by this test alone, and gone with it
    GM_PACKAGES_INSIDE=1 exec unshare --mount --mount-proc --pid --fork --kill-child sh "$0" "$@"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/gm-packages.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT

fail() {
    echo "packages: FAILED: $*"
    exit 1
}

# in_root COMMAND...
in_root() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
        SIMCUDA_DIR=/tmp/sim SIMCUDA_MEMORY=1G LD_LIBRARY_PATH="$libraries" "$@"
}

# show COMMAND...: the same, with the command in the output.
show() {
    echo "# $*"
    in_root "$@"
}

# All files, but those that belong to apt and dpkg themselves, to the linker's cache, or to this test.
files() {
    (cd "$root" && find . -xdev ! -type d -o -type d -empty) | grep -Ev \
        '^\./(proc|sys|dev|tmp|run)(/|$)|^\./var/(lib/(apt|dpkg)|cache/(apt|debconf|ldconfig)|log)(/|$)|ld\.so\.cache' | sort
}

# version V FOLDER: packages of this source as version V.
version() {
    mkdir -p "$work/source" && (cd "$source" && git ls-files -z | tar -c --null -T -) | tar -x -C "$work/source"
    sed -i "s/^project(gpumux VERSION [0-9.]*/project(gpumux VERSION $1/" "$work/source/CMakeLists.txt"
    GM_CUDA_INCLUDE=$(sed -n 's/^GM_CUDA_INCLUDE:[A-Z]*=//p' "$build/CMakeCache.txt") \
        sh "$work/source/packaging/build.sh" "$work/build" > "$work/said" 2>&1 || fail "$(tail -n 20 "$work/said")"
    mkdir "$root/tmp/$2" && cp "$work/build"/*.deb "$root/tmp/$2"
}

# daemon: the packages' gpumuxd on the simulated GPU, by hand as systemd does not run here.
start_daemon() {
    in_root gpumuxd --gpu-budget 160M --pinned 512M --slice 200ms > "$work/daemon.out" 2>&1 &
    for try in $(seq 100); do
        in_root mux-ctl status > /dev/null 2>&1 && return
        sleep 0.1
    done
    fail "the daemon does not start: $(cat "$work/daemon.out")"
}

stop_daemon() {
    kill "$(cat "$root"/run/gpumux/*.lock | head -n 1)" || fail "who is the daemon?"
    wait
}

# share: two programs, each with 60 % of the budget.
share() {
    for n in 1 2; do
        in_root mux-ctl run --require -- /tmp/gm_worker --bytes 96M --seconds 4 --seed $n > "$work/$n.out" 2>&1 &
        eval "pid$n=$!"
    done
    sleep 2
    show mux-ctl status
    wait "$pid1" "$pid2"
    for n in 1 2; do
        grep '^PASS .*mismatches=0 ' "$work/$n.out" || fail "program $n: $(cat "$work/$n.out")"
    done
}

root=${2:-$work/root}
libraries=
[ -n "${2:-}" ] || debootstrap --variant=minbase bookworm "$root" > "$work/said" 2>&1 || fail "$(tail -n 5 "$work/said")"
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs -o mode=755 tmpfs "$root/run" || exit 2
in_root apt-get -q update > "$work/said" 2>&1 || fail "$(cat "$work/said")"
files > "$work/before"

version 0.1.0 old
if command -v lintian > /dev/null; then
    lintian --allow-root --fail-on error,warning "$root"/tmp/old/*.deb || fail "lintian finds mistakes"
fi
show apt-get -q -y install --no-install-recommends /tmp/old/gpumux_0.1.0_amd64.deb /tmp/old/libgpumux_0.1.0_amd64.deb ||
    fail "they cannot be installed"
files > "$work/installed"
diff "$work/before" "$work/installed" | sed -n 's/^> /    /p'
mkdir -p "$root/tmp/sim" "$root/tmp/simcuda" && cp -P "$build"/tests/simcuda/*.so* "$root/tmp/simcuda"
cp "$build/tests/programs/gm_worker" "$root/tmp"
libraries=/tmp/simcuda
echo '# wrong values: refused with file and line, or warned of and harmless'
mkdir -p "$root/tmp/values" && echo text > "$root/tmp/values/file"
cp "$root/etc/gpumux/gpumux.conf" "$work/gpumux.conf"
line=$(($(wc -l < "$work/gpumux.conf") + 1))
while read -r verdict value; do
    case $verdict in refuse) expected=1 ;; warn) expected=0 ;; *) continue ;; esac
    { cat "$work/gpumux.conf" && echo "$value" | sed 's|@|/tmp/values|'; } > "$root/etc/gpumux/gpumux.conf"
    in_root gpumuxd --check > "$work/said" 2>&1 < /dev/null
    code=$?
    [ "$code" = "$expected" ] && grep -q "/etc/gpumux/gpumux.conf:$line: " "$work/said" || fail "$value: $code, $(cat "$work/said")"
    [ "$verdict" = refuse ] || { start_daemon && stop_daemon; } < /dev/null
done < "$source/tests/integration/config_values.txt"
cp "$work/gpumux.conf" "$root/etc/gpumux/gpumux.conf"
rm -r "$root/tmp/values"
start_daemon
share

echo '# an upgrade beside the running daemon; the admin changed the configuration'
echo 'log-level = warn' >> "$root/etc/gpumux/gpumux.conf"
version 0.1.1 new
show apt-get -q -y install --no-install-recommends /tmp/new/gpumux_0.1.1_amd64.deb /tmp/new/libgpumux_0.1.1_amd64.deb ||
    fail "they cannot be upgraded"
[ "$(in_root mux-ctl --version)" != "" ] && in_root gpumuxd --version | grep 0.1.1 || fail "this is not the new one"
grep -q 'log-level = warn' "$root/etc/gpumux/gpumux.conf" || fail "the admin's configuration is gone"
share
stop_daemon
start_daemon
share
stop_daemon

mkdir -p "$root/run/gpumux/gpumux.sock.mps/0/pipe" && : > "$root/run/gpumux/gpumux.sock.mps/0/pipe/control" # MPS lives
show apt-get -q -y remove gpumux libgpumux || fail "they cannot be removed"
[ -f "$root/etc/gpumux/gpumux.conf" ] || fail "removing took the configuration"
[ -e "$root/run/gpumux/gpumux.sock.mps/0/pipe/control" ] || fail "removing took the sockets of MPS"
show apt-get -q -y purge --autoremove gpumux libgpumux || fail "they cannot be purged"
files > "$work/after"
diff "$work/before" "$work/after" || fail "something is left (>) or lost (<)"
[ -z "$(ls -A "$root/run")" ] || fail "left in /run: $(find "$root/run")"
echo "packages: nothing is left"
command -v systemd-nspawn > /dev/null || exit 0

echo '# with systemd'
in_root apt-get -q -y install --no-install-recommends systemd systemd-sysv > "$work/said" 2>&1 || fail "$(tail "$work/said")"
umount -R "$root/proc" "$root/dev" "$root/run"
rm -rf "$root/trial" && mkdir "$root/trial" && cp -r "$root/tmp/old" "$root/tmp/new" "$root/tmp/simcuda" "$root/tmp/gm_worker" "$root/trial"
cat > "$root/trial/trial.sh" << 'END'
set -eux
export SIMCUDA_DIR=/trial/sim SIMCUDA_MEMORY=1G DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /trial/sim /run/systemd/system/gpumuxd.service.d
printf '[Service]\nWatchdogSec=2\nEnvironment=SIMCUDA_DIR=/trial/sim SIMCUDA_MEMORY=1G LD_LIBRARY_PATH=/trial/simcuda\n' \
    > /run/systemd/system/gpumuxd.service.d/sim.conf
is_version() { mux-ctl status | head -n 1 | grep "gpumuxd $1,"; }
worker() { LD_LIBRARY_PATH=/trial/simcuda mux-ctl run --require -- /trial/gm_worker --bytes 600M --seconds "$1" --seed "$2"; }

apt-get -q -y install --no-install-recommends /trial/old/*.deb # enables and starts it
systemctl is-enabled gpumuxd
systemctl is-active gpumuxd
grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/"$(systemctl show -P MainPID gpumuxd)"/status
worker 25 1 & one=$!
worker 25 2 & two=$!
sleep 5
mux-ctl status
systemd-analyze verify --man=no gpumuxd.service gpumux-keeper.service
systemctl is-active gpumux-keeper
[ "$(stat -c %a /run/gpumux-keeper)" = 700 ]
cp /etc/gpumux/gpumux.conf /trial/gpumux.conf
echo 'disk = /home/none:1G' >> /etc/gpumux/gpumux.conf # a mistake: the old daemon goes on, and it is said where
apt-get -q -y install --no-install-recommends /trial/new/*.deb > /trial/said 2>&1
grep '/etc/gpumux/gpumux.conf:[0-9]*: --disk /home/none: ' /trial/said
grep 'the old one goes on' /trial/said
is_version 0.1.0
sed -i 's/^disk = .*/disk = \/root:1G/' /etc/gpumux/gpumux.conf # the unit may not write there
if gpumuxd --check > /trial/said 2>&1; then exit 1; fi
grep 'gpumux.conf:[0-9]*: the service may not write in /root (ProtectHome= of gpumuxd.service)' /trial/said
cp /trial/gpumux.conf /etc/gpumux/gpumux.conf
apt-get -q -y install --no-install-recommends --reinstall /trial/new/*.deb # starts the daemon anew beside programs, which lose nothing
is_version 0.1.1
systemctl kill -s KILL gpumuxd # the service manager starts another one
sleep 4
systemctl kill -s STOP gpumuxd # it hangs: its watchdog's turn, after 2 s here
sleep 8
is_version 0.1.1
wait $one
wait $two
worker 1 3
systemctl restart gpumuxd # nobody is there: its keeper stays in its unit
systemctl is-active gpumux-keeper
worker 20 4 & three=$!
sleep 2
mkdir -p /run/gpumux/gpumux.sock.mps/0/pipe
apt-get -q -y remove gpumux libgpumux # gives all back and stops it
if systemctl is-active gpumuxd || systemctl is-active gpumux-keeper; then exit 1; fi
wait $three
[ -e /run/gpumux/gpumux.sock.mps/0/pipe ] # MPS may outlive the daemon
apt-get -q -y purge gpumux libgpumux
[ ! -e /run/gpumux ]
[ ! -e /run/gpumux-keeper ]
rm -r /run/systemd/system/gpumuxd.service.d
[ -z "$(find / -xdev -name '*gpumux*' -not -path '/trial/*')" ]
echo well > /trial/ended
END
cat > "$root/etc/systemd/system/trial.service" << 'END'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sh /trial/trial.sh > /trial/out 2>&1'
ExecStopPost=systemctl poweroff -ff
TimeoutStartSec=600
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../trial.service "$root/etc/systemd/system/multi-user.target.wants"
timeout 900 systemd-nspawn --register=no --keep-unit -b -D "$root" < /dev/null > "$work/said" 2>&1
grep -v '^(Reading database' "$root/trial/out"
[ -f "$root/trial/ended" ] || fail "with systemd: see above; the console said: $(tail -n 20 "$work/said")"
echo "packages: started, upgraded and stopped by systemd, and nothing is left"
