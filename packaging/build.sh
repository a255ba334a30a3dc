#!/bin/sh
# sh packaging/build.sh [DIR]: builds without tests and makes the Debian packages gpumux and libgpumux in DIR
# (build-deb). Installs what the build needs. Build on the distribution that the packages are for.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/setup.sh"

[ $# -le 1 ] || gm_die "usage: sh packaging/build.sh [DIR]"
gm_install user
gm_missing=
gm_has dpkg-shlibdeps || gm_missing="$gm_missing dpkg-dev"
gm_has file || gm_missing="$gm_missing file"
# shellcheck disable=SC2086 # a list of packages
[ -z "$gm_missing" ] || gm_apt $gm_missing
mkdir -p "${1:-$root/build-deb}"
out=$(cd "${1:-$root/build-deb}" && pwd)
gm_configure "$out" -DGM_TESTS=OFF -DGM_PACKAGE=ON -DCMAKE_INSTALL_PREFIX=/usr && gm_build "$out" ||
    gm_die "the build failed (see $out.log)"
rm -f "$out"/*.deb
umask 022
gm_progress "cpack" "$out.log" cpack --config "$out/CPackConfig.cmake" -B "$out" || { tail -n 20 "$out.log" >&2; gm_die "cpack failed (see $out.log)"; }
[ -f "$out/spank/spank.so" ] ||
    echo "setup: without the Slurm plugin, as Slurm's headers are not here (Debian: libslurm-dev)"
for gm_package in "$out"/*.deb; do echo "setup: made $gm_package"; done
