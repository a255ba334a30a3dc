#!/bin/sh
# An installation's units start the gpumuxd of that installation: with the prefix of the configuration, with another
# one, and staged with DESTDIR. Installs from daemon/ of the build, which holds the programs, the units and the example
# of a configuration file, and so leaves the build's own install_manifest.txt alone.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-install.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "install: FAILED: $*"
    exit 1
}

# expect STAGE PREFIX: below STAGE, each unit starts PREFIX/bin/gpumuxd, and that is an installed program.
expect() {
    for kind in system user; do
        unit=$1$2/lib/systemd/$kind/gpumuxd.service
        [ -f "$unit" ] || fail "$unit is not installed"
        started=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
        [ "$started" = "$2/bin/gpumuxd" ] || fail "$unit starts $started, and $2/bin/gpumuxd was installed"
        [ -x "$1$started" ] || fail "$unit starts $started, which is not installed"
        ! grep -q '@' "$unit" || fail "$unit: not filled in: $(grep '@' "$unit")"
    done
    [ -f "$1$2/share/doc/gpumux/gpumux.conf" ] || fail "no example of a configuration file"
    ! grep -r "$dir/stage" "$1$2/lib/systemd" || fail "DESTDIR got into a unit"
}

# into STAGE PREFIX
into() {
    DESTDIR="$1" cmake --install "$BUILD/daemon" --prefix "$2" > "$dir/said" 2>&1 || fail "$(cat "$dir/said")"
    expect "$1" "$2"
}

into "$dir/stage" /usr
into "$dir/stage" /opt/gpumux # after another one: nothing of that is left over
into "" "$dir/prefix"
(cd "$dir" && DESTDIR='' cmake --install "$BUILD/daemon" --prefix relative > "$dir/said" 2>&1) || fail "$(cat "$dir/said")"
expect "" "$dir/relative"

configured=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$BUILD/CMakeCache.txt")
DESTDIR="$dir/stage" cmake --install "$BUILD/daemon" > "$dir/said" 2>&1 || fail "$(cat "$dir/said")"
expect "$dir/stage" "$configured"
