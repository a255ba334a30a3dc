#!/bin/sh
# Other tests pass as well if the daemon has only the capabilities, system calls and address families that the system's
# unit leaves it. The unit's exposure, as systemd-analyze counts it, is below 4. What needs a GPU or a running systemd is
# not seen here.
. "$(dirname "$0")/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
unit=$dir/gpumuxd.service
[ "$(id -u)" = 0 ] || skip "only root has capabilities to lose"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitizer needs calls that the unit takes away"
command -v systemd-analyze > /dev/null || skip "there is no systemd-analyze"
sed 's/^ExecStart=.*/ExecStart=true/; s/^ExecReload=@.*//' "$here/../../systemd/system/gpumuxd.service.in" > "$unit"
chmod 1777 "$dir"
cat > "$dir/confined" << END
#!/bin/sh
[ "\$(id -u)" = 0 ] || exec "\$@"
exec python3 "$here/confine.py" "$unit" "\$@"
END
chmod 755 "$dir/confined"
"$dir/confined" true 2> "$dir/said" || skip "a program cannot be confined: $(tail -n 1 "$dir/said")"
systemd-analyze security --offline=true --threshold=39 "$unit" > "$dir/security" 2>&1 || fail "$(tail -n 1 "$dir/security")"
say "$(tail -n 1 "$dir/security")"

! "$dir/confined" mount -t tmpfs tmpfs "$dir/run" 2> /dev/null || fail "it may mount"
! "$dir/confined" chroot / true 2> /dev/null || fail "it has all capabilities"
! "$dir/confined" python3 -c 'import ctypes, errno, os, sys; c = ctypes.CDLL(None, use_errno=True); c.syscall({"x86_64": 175, "aarch64": 105}[os.uname().machine], 0, 0, b""); sys.exit(ctypes.get_errno() == errno.EPERM)' 2> /dev/null || fail "it may load modules"
! "$dir/confined" python3 -c 'import socket; socket.socket(socket.AF_INET)' 2> /dev/null || fail "it may use the network"

# A build whose daemon is confined.
mkdir -p "$dir/build/daemon"
for part in "$BUILD"/*; do [ "$part" = "$BUILD/daemon" ] || ln -s "$part" "$dir/build"; done
ln -s "$ctl" "$dir/build/daemon"
printf '#!/bin/sh\nexec %s %s "$@"\n' "$dir/confined" "$BUILD/daemon/gpumuxd" > "$dir/build/daemon/gpumuxd"
chmod 755 "$dir/build/daemon/gpumuxd"
export PARTS=1 # of those in parts
for test in kinds stopped strangers second_daemon space_sharing; do
    BUILD=$dir/build sh "$here/$test.sh" > "$dir/$test.out" 2>&1
    case $? in
    0) say "$test passed" ;;
    77) say "$test: $(grep '^skipped' "$dir/$test.out")" ;;
    *) fail "$test" ;;
    esac
done
