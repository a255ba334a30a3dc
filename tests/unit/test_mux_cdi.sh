#!/bin/sh
# mux-ctl cdi writes what the specification of the Container Device Interface and its JSON schema ask for
# (github.com/cncf-tags/container-device-interface, SPEC.md and schema/), and containers find by it what this build has.
set -u
ctl=$BUILD/daemon/mux-ctl
command -v python3 > /dev/null || { echo "skipped: no python3" && exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-cdi.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
unset GPUMUX_SOCKET GPUMUX_LIB

fail() {
    echo "mux_cdi: FAILED: $*"
    exit 1
}

cat > "$dir/check.py" << 'END_OF_CHECK'
"""check.py FILE SOCKETS: the document by the specification, version 0.3.0, and what it is to say."""
import json
import os
import re
import sys


def is_path(text):
    return isinstance(text, str) and text.startswith("/") and os.path.normpath(text) == text


with open(sys.argv[1], encoding="utf-8") as file:
    root = json.load(file)
assert set(root) == {"cdiVersion", "kind", "devices"}, root.keys() # the schema takes nothing else
assert root["cdiVersion"] == "0.3.0"
# Before 0.5.0 names begin with a letter; before 0.6.0 the class has no dots.
vendor, _, kind = root["kind"].partition("/")
assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", vendor), vendor
assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", kind), kind
names = [device["name"] for device in root["devices"]]
assert root["kind"] == "gpumux.dev/gpu" and names == ["env", "preload-file"], names
for device in root["devices"]:
    assert set(device) == {"name", "containerEdits"}, device.keys()
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"]), device["name"]
    edits = device["containerEdits"]
    assert set(edits) <= {"env", "deviceNodes", "mounts", "hooks"} and edits, edits.keys()
    assert all(re.fullmatch(r"[A-Z_]+=.*", text) for text in edits.get("env", [])), edits
    for mount in edits["mounts"]:
        assert set(mount) == {"hostPath", "containerPath", "options"}, mount # "type" came with 0.4.0
        assert is_path(mount["hostPath"]) and is_path(mount["containerPath"]), mount
        assert isinstance(mount["options"], list) and all(isinstance(text, str) for text in mount["options"]), mount
        assert "ro" in mount["options"], mount
    where = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert len(where) == len(edits["mounts"]), edits["mounts"] # two at one place
    assert where.pop("/run/gpumux") == sys.argv[2], where # the folder: the socket is another one after a restart
    loaded = [text[len("LD_PRELOAD="):] for text in edits.get("env", [])]
    if device["name"] == "preload-file":
        with open(where.pop("/etc/ld.so.preload"), encoding="utf-8") as file:
            loaded += file.read().splitlines()
    assert len(loaded) == 1, loaded
    with open(where.pop(loaded[0]), "rb") as file:
        assert file.read(4) == b"\x7fELF"
    assert all(inside == outside and inside.endswith("/profiles") for inside, outside in where.items()), where
END_OF_CHECK

# expect SOCKETS OPTION...
expect() {
    sockets=$1
    shift
    "$ctl" cdi "$@" > "$dir/cdi.json" 2> "$dir/said" || fail "cdi $* ended with $?: $(cat "$dir/said")"
    python3 "$dir/check.py" "$dir/cdi.json" "$sockets" || fail "cdi $*: $(cat "$dir/cdi.json")"
}
expect /run/gpumux
expect /run/user/1000/gpumux --socket=/run/user/1000/gpumux/gpumux.sock
GPUMUX_SOCKET="/tmp/a \"folder\"/gpumux.sock" expect '/tmp/a "folder"'

# refuses TEXT [OPTION...]: one line, and nothing on standard output.
refuses() {
    text=$1
    shift
    "$ctl" cdi "$@" > "$dir/out" 2> "$dir/said"
    [ $? = 1 ] && [ ! -s "$dir/out" ] && [ "$(wc -l < "$dir/said")" = 1 ] && grep -qF -- "$text" "$dir/said" ||
        fail "cdi $*: $(cat "$dir/out" "$dir/said")"
}
refuses 'must be a whole path that ends in /gpumux.sock' --socket=gpumux.sock
refuses 'must be a whole path that ends in /gpumux.sock' --socket=/gpumux.sock
refuses 'must be a whole path that ends in /gpumux.sock' --socket=/tmp/other.sock
GPUMUX_LIB=$dir/none refuses "GPUMUX_LIB names $dir/none"
: > "$dir/libgpumux.so"
GPUMUX_LIB=$dir/libgpumux.so refuses "$dir/gpumux/ld.so.preload: No such file or directory: install gpumux"
"$ctl" cdi > /dev/full 2> "$dir/said"
[ $? = 1 ] && grep -q 'the document cannot be written' "$dir/said" || fail "a full disk: $(cat "$dir/said")"

# --install, --remove and what doctor says of the file: where /etc can be another one for this test alone.
cat > "$dir/installs.sh" << 'END'
set -e
fail() { echo "mux_cdi: FAILED: $*"; exit 1; }
mount -t tmpfs tmpfs /etc
says() { "$ctl" doctor --json --socket "$dir/none" | python3 -c 'import json,sys
print([c["state"] for c in json.load(sys.stdin)["checks"] if c["name"] == "cdi"])'; }
[ "$(says)" = "[]" ] || fail "doctor without a file: $(says)"
"$ctl" cdi --remove | grep -q 'there is no /etc/cdi/gpumux.json' || fail "--remove without a file"
"$ctl" cdi --install | grep -qx 'wrote /etc/cdi/gpumux.json' || fail "--install"
"$ctl" cdi | cmp - /etc/cdi/gpumux.json || fail "it installs something else"
[ "$(says)" = "['ok']" ] || fail "doctor of a good file: $(says)"
"$ctl" cdi --install --socket /run/user/7/gpumux.sock > /dev/null && [ "$(says)" = "['ok']" ] || fail "doctor of another socket: $(says)"
sed -i 's/libgpumux.so"/libgpumux-old.so"/' /etc/cdi/gpumux.json
[ "$(says)" = "['note']" ] || fail "doctor of a stale file: $(says)"
"$ctl" cdi --remove | grep -qx 'removed /etc/cdi/gpumux.json' && [ ! -e /etc/cdi/gpumux.json ] || fail "--remove"
for text in '{"kind":"nvidia.com/gpu"}' 'no JSON' ''; do
    echo "$text" > /etc/cdi/gpumux.json
    for how in --install --remove; do
        ! "$ctl" cdi $how > "$dir/out" 2> "$dir/said" && grep -q 'it is not of gpumux, and stays' "$dir/said" &&
            [ "$(cat /etc/cdi/gpumux.json)" = "$text" ] || fail "$how of somebody else's file: $(cat "$dir/said")"
    done
done
! "$ctl" cdi --install --remove 2> "$dir/said" && grep -q 'not both' "$dir/said" || fail "both"
END
export ctl dir
if unshare --mount --map-root-user mount -t tmpfs tmpfs /etc 2> /dev/null; then
    unshare --mount --map-root-user sh "$dir/installs.sh" || exit 1
else
    echo "not checked: --install and --remove, as nothing can be mounted here"
fi
echo "the document is as the specification says"
