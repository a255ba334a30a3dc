#!/bin/sh
# An installation has exactly the files of the list below, with another prefix than the configuration's and staged with
# DESTDIR, too; its units start the gpumuxd of that installation; and the target "uninstall" leaves nothing of it.
# Installs the two components by themselves, and so leaves the build's own install_manifest.txt alone.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-install.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "install: FAILED: $*"
    exit 1
}

# What is below the prefix; LIB is the folder of libraries. The profiler's library and Slurm's plugin are there if they were built.
sort > "$dir/list" << END
$([ ! -f "$BUILD/shim/profiler/libgpumux-profile.so" ] || echo LIB/libgpumux-profile.so)
$([ ! -f "$BUILD/packaging/slurm/spank.so" ] || echo LIB/gpumux/spank.so)
bin/gpumux-keeper
bin/gpumuxd
bin/mux-ctl
include/gpumux.h
LIB/gpumux/ld.so.preload
LIB/libgpumux.so
lib/systemd/system/gpumux-keeper.service
lib/systemd/system/gpumuxd.service
lib/systemd/user/gpumux-keeper.service
lib/systemd/user/gpumuxd.service
share/bash-completion/completions/gpumuxd
share/bash-completion/completions/mux-ctl
share/doc/gpumux/gpumux.conf
share/fish/vendor_completions.d/gpumuxd.fish
share/fish/vendor_completions.d/mux-ctl.fish
share/gpumux/grafana.json
share/man/man1/mux-ctl.1
share/man/man5/gpumux.conf.5
share/man/man7/gpumux.7
share/man/man7/libgpumux.7
share/man/man8/gpumux-keeper.8
share/man/man8/gpumuxd.8
$(cd "$SOURCE/shim/profiler/profiles" && for file in *.profile; do [ ! -f "$file" ] || echo "share/gpumux/profiles/$file"; done)
share/zsh/vendor-completions/_mux-ctl
END
sed -i '/^$/d' "$dir/list"

# expect_unit STAGE PREFIX KIND PROGRAM: its unit starts what was installed, and systemd has nothing to say of it.
expect_unit() {
    unit=$1$2/lib/systemd/$3/$4.service
    started=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
    [ "$started" = "$2/bin/$4" ] || fail "$unit starts $started, and $2/bin/$4 was installed"
    [ -x "$1$started" ] || fail "$unit starts $started, which cannot be executed"
    ! grep -E '@[A-Z_]+@' "$unit" || fail "$unit is not filled in"
    # What outlives the daemon needs its sockets.
    ! grep -q '^KillMode=process$' "$unit" || grep -q '^RuntimeDirectoryPreserve=yes$' "$unit" ||
        fail "$unit leaves MPS alive and takes its sockets away"
    for page in $(sed -n 's/^Documentation=//p' "$unit" | tr ' ' '\n' | sed -n 's/^man:\(.*\)(\([0-9]\))$/man\2\/\1.\2/p'); do
        [ -f "$1$2/share/man/$page" ] || fail "$unit names $page, which is not installed"
    done
    [ -z "$1" ] && command -v systemd-analyze > /dev/null || return 0
    verify=--$3
    [ "$3" = user ] || verify=--system
    XDG_RUNTIME_DIR=$dir SYSTEMD_UNIT_PATH="$2/lib/systemd/$3:" systemd-analyze verify $verify --man=no "$unit" \
        > "$dir/said" 2>&1 && ! grep -F "$4.service" "$dir/said" || fail "systemd says of $unit: $(cat "$dir/said")"
}

# expect STAGE PREFIX: below STAGE is that list, and each unit starts PREFIX/bin/gpumuxd.
expect() {
    (cd "$1$2" && find . ! -type d) | sed -E 's,^\./,,; s,^lib[^ ]*/(libgpumux(-profile)?.so|gpumux/(ld.so.preload|spank.so))$,LIB/\1,' | sort > "$dir/found"
    diff "$dir/list" "$dir/found" > "$dir/diff" || fail "below $1$2 (<: lacking, >: too much): $(cat "$dir/diff")"
    for kind in system user; do
        for program in gpumuxd gpumux-keeper; do expect_unit "$1" "$2" $kind $program; done
    done
    ! grep -r "$dir/stage" "$1$2/lib/systemd" || fail "DESTDIR got into a unit"
}

# into STAGE [OPTION...]
into() {
    stage=$1
    shift
    for component in gpumux libgpumux; do
        DESTDIR="$stage" cmake --install "$BUILD" --component $component "$@" > "$dir/said" 2>&1 || fail "$(cat "$dir/said")"
        cp "$BUILD/install_manifest_$component.txt" "$dir"
    done
}

# out_of STAGE: as the target does.
out_of() {
    for manifest in "$dir"/install_manifest_*.txt; do cat "$manifest" && echo; done > "$dir/manifest"
    DESTDIR="$1" cmake -DMANIFEST="$dir/manifest" -P "$SOURCE/packaging/uninstall.cmake" > "$dir/said" 2>&1 ||
        fail "$(cat "$dir/said")"
}

into "$dir/stage" --prefix /usr
expect "$dir/stage" /usr
mkdir -p "$dir/stage/etc/cdi" "$dir/stage/etc/slurm" # what the pages tell people to write, and what is no affair of ours
echo 'LD_PRELOAD=libgpumux.so' > "$dir/stage/etc/environment"
echo 'optional /usr/lib/x86_64-linux-gnu/gpumux/spank.so' > "$dir/stage/etc/slurm/plugstack.conf"
echo 'libother.so' > "$dir/stage/etc/ld.so.preload"
"$BUILD/daemon/mux-ctl" cdi > "$dir/stage/etc/cdi/gpumux.json" || fail "cdi"
out_of "$dir/stage"
[ "$(grep -o 'Left.*' "$dir/said" | sed "s,$dir/stage,," | sort | tr '\n' ';')" = "$(for file in cdi/gpumux.json environment slurm/plugstack.conf; do
    printf 'Left, as you wrote it: /etc/%s still names gpumux;' $file; done)" ] || fail "what is left: $(cat "$dir/said")"
rm -r "$dir/stage/etc"
[ -z "$(find "$dir/stage" ! -type d)" ] || fail "left of /usr: $(find "$dir/stage" ! -type d)"
[ -d "$dir/stage/usr/bin" ] || fail "a folder of the system is gone"
[ ! -d "$dir/stage/usr/share/doc/gpumux" ] || fail "an empty folder is left in share/doc"

into "$dir/stage" --prefix /opt/gpumux # after another one: nothing of that is left over
expect "$dir/stage" /opt/gpumux
touch "$dir/stage/opt/gpumux/lib/somebody-else"
out_of "$dir/stage"
left=$(cd "$dir/stage/opt/gpumux" && find .)
[ "$(echo $left)" = ". ./lib ./lib/somebody-else" ] || fail "left of /opt/gpumux:" $left

into "" --prefix "$dir/prefix"
expect "" "$dir/prefix"
if grep -q '^GM_SANITIZE:STRING=$' "$BUILD/CMakeCache.txt"; then # else the library cannot be loaded into a plain program
    "$dir/prefix/bin/mux-ctl" run -- env > "$dir/said" 2>&1
    grep -q "^LD_PRELOAD=$dir/prefix/lib.*/libgpumux.so" "$dir/said" || fail "mux-ctl run preloads: $(cat "$dir/said")"
fi
out_of ""
[ ! -e "$dir/prefix" ] || fail "left of a prefix of its own: $(find "$dir/prefix")"

(cd "$dir" && into "" --prefix relative) || exit 1
expect "" "$dir/relative"

configured=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$BUILD/CMakeCache.txt")
rm -rf "$dir/stage"
into "$dir/stage"
expect "$dir/stage" "$configured"
