#!/bin/sh
# Brings a Debian or Ubuntu machine to where gpumux builds: installs what is missing, fetches NVIDIA's headers
# where there is no CUDA toolkit, and builds.
#
#   . tests/setup.sh            with $root set: defines gm_install, gm_configure, gm_build
#   sh tests/setup.sh           install and build into build/
#   sh tests/setup.sh --user    the same without tests and benches, and without what only they need
#   sh tests/setup.sh --cupti   fetch CUPTI's headers as well (tests/gpu/crosscheck is built if they are there)
#   sh tests/setup.sh --sanitizer   fetch NVIDIA's Compute Sanitizer API as well (mux-ctl profile is complete if it is there)
#   sh tests/setup.sh --portable [DIR]
#                               build into DIR (build-portable) with libuv and cJSON linked statically: a folder
#                               that runs on another distribution
#
# It installs only what is missing, says what it installs, and ends with one line when it cannot.

gm_die() {
    echo "setup: $*" >&2
    exit 1
}

gm_has() {
    command -v "$1" > /dev/null 2>&1
}

gm_has_library() {
    gm_has pkg-config && pkg-config --exists "$1"
}

gm_has_cc() {
    gm_has cc && printf '#include <stdlib.h>\n' | cc -E -o /dev/null -x c - 2> /dev/null
}

# gm_progress WHAT LOG COMMAND...: the command; its output is added to LOG ("": it stays). If it takes more than two seconds
# a terminal shows what is done, for how long, and the last line of LOG. Elsewhere it is quiet.
gm_progress() {
    gm_what=$1
    gm_file=$2
    shift 2
    gm_ticker=
    if [ -t 2 ]; then
        ( # it ends with this shell, too
            gm_s=2
            sleep 2
            while kill -0 $$ 2> /dev/null; do
                gm_said=$([ -z "$gm_file" ] || tail -n 1 "$gm_file" 2> /dev/null | cut -c 1-50)
                printf '\r\033[K  %s ... %s s  %s' "$gm_what" "$gm_s" "$gm_said" >&2
                sleep 1
                gm_s=$((gm_s + 1))
            done
        ) &
        gm_ticker=$!
    fi
    gm_code=0
    if [ -n "$gm_file" ]; then
        "$@" >> "$gm_file" 2>&1 || gm_code=$?
    else
        "$@" || gm_code=$?
    fi
    if [ -n "$gm_ticker" ]; then
        kill "$gm_ticker" 2> /dev/null
        wait "$gm_ticker" 2> /dev/null
        printf '\r\033[K' >&2
    fi
    return "$gm_code"
}

# Run as root: directly, or through sudo.
gm_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# gm_apt PACKAGE...: install these, once, without questions.
gm_apt() {
    gm_has apt-get || gm_die "no apt-get here: install by hand: $*"
    if [ "$(id -u)" != 0 ] && ! gm_has sudo; then
        gm_die "not root and no sudo: as root, apt-get install $*"
    fi
    echo "setup: installing $*"
    mkdir -p "$root/build"
    gm_log=$root/build/setup.log
    gm_as_root true # sudo asks for its password before anything is shown
    if [ -z "${gm_updated:-}" ]; then
        : > "$gm_log"
        gm_progress "apt-get update" "$gm_log" gm_as_root apt-get -q -o DPkg::Lock::Timeout=300 update ||
            { tail -n 20 "$gm_log" >&2; gm_die "apt-get update failed"; }
        gm_updated=1
    fi
    gm_progress "apt-get install" "$gm_log" gm_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" ||
        { tail -n 20 "$gm_log" >&2; gm_die "apt-get could not install: $* (Ubuntu has some of them in its component universe)"; }
}

# The folder of cudaTypedefs.h (and cudaProfiler.h) of CUDA 13.0 or newer into $gm_cuda; non-zero if there is none.
gm_find_cuda() {
    for gm_cuda in "${GM_CUDA_INCLUDE:-}" "${CUDA_HOME:+$CUDA_HOME/include}" \
        /usr/local/cuda/include "$root/build/cuda/nvidia/cu13/include"; do
        [ -n "$gm_cuda" ] && [ -f "$gm_cuda/cudaTypedefs.h" ] && [ -f "$gm_cuda/cudaProfiler.h" ] || continue
        gm_version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$gm_cuda/cuda.h")
        [ "${gm_version:-0}" -ge 13000 ] && return 0
    done
    gm_cuda=
    return 1
}

# NVIDIA's own header wheels from PyPI into build/cuda; nothing else of the machine changes.
gm_fetch_cuda() {
    gm_has python3 && python3 -m pip --version > /dev/null 2>&1 || gm_apt python3 python3-pip ca-certificates
    echo "setup: fetching the CUDA 13.0 headers from PyPI into build/cuda"
    gm_progress "pip install" "" env PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-compile \
        --only-binary=:all: --upgrade --target "$root/build/cuda" 'cuda-toolkit[cudart,profiler]==13.0.*' ||
        gm_die "pip could not fetch cuda-toolkit[cudart,profiler] 13.0: install the CUDA 13 toolkit by hand"
    gm_find_cuda || gm_die "the wheels of cuda-toolkit 13.0 hold no cudaTypedefs.h"
}

# CUPTI's headers likewise. Nobody but tests/gpu/crosscheck needs them.
gm_fetch_cupti() {
    for gm_folder in "$gm_cuda" "$gm_cuda/../extras/CUPTI/include" /usr/local/cuda/extras/CUPTI/include; do
        [ ! -f "$gm_folder/cupti_callbacks.h" ] || return 0
    done
    gm_has python3 && python3 -m pip --version > /dev/null 2>&1 || gm_apt python3 python3-pip ca-certificates
    echo "setup: fetching the CUPTI 13.0 headers from PyPI into build/cuda"
    gm_progress "pip install" "" env PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-compile --no-deps \
        --only-binary=:all: --upgrade --target "$root/build/cuda" 'nvidia-cuda-cupti==13.0.*' ||
        gm_die "pip could not fetch nvidia-cuda-cupti 13.0"
    [ -f "$root/build/cuda/nvidia/cu13/include/cupti_callbacks.h" ] ||
        gm_die "the wheel of nvidia-cuda-cupti 13.0 holds no cupti_callbacks.h"
}

# The Compute Sanitizer API likewise: its headers for the build, and its library for programs that are profiled.
gm_fetch_sanitizer() {
    gm_has python3 && python3 -m pip --version > /dev/null 2>&1 || gm_apt python3 python3-pip ca-certificates
    echo "setup: fetching the Compute Sanitizer API from PyPI into build/cuda"
    gm_progress "pip install" "" env PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --no-compile --no-deps \
        --only-binary=:all: --upgrade --target "$root/build/cuda" 'nvidia-cuda-sanitizer-api==13.5.25' ||
        gm_die "pip could not fetch nvidia-cuda-sanitizer-api 13.5.25"
    [ -f "$root/build/cuda/nvidia/cu13/compute-sanitizer/include/sanitizer.h" ] ||
        gm_die "the wheel of nvidia-cuda-sanitizer-api holds no sanitizer.h"
}

# gm_install [user]: everything that a build and its tests need; with "user", all but what only tests need.
gm_install() {
    gm_missing=
    gm_has cmake || gm_missing="$gm_missing cmake"
    gm_has ninja || gm_has make || gm_missing="$gm_missing ninja-build"
    gm_has_cc || gm_missing="$gm_missing gcc libc6-dev"
    gm_has pkg-config || gm_missing="$gm_missing pkg-config"
    gm_has_library libuv || gm_missing="$gm_missing libuv1-dev"
    gm_has_library libcjson || gm_missing="$gm_missing libcjson-dev"
    gm_has_library libmicrohttpd || gm_missing="$gm_missing libmicrohttpd-dev"
    gm_has_library ncursesw || gm_missing="$gm_missing libncurses-dev"
    [ "${1:-}" = user ] || gm_has_library cmocka || gm_missing="$gm_missing libcmocka-dev"
    [ "${1:-}" = user ] || gm_has tmux || gm_missing="$gm_missing tmux"
    # shellcheck disable=SC2086 # a list of packages
    [ -z "$gm_missing" ] || gm_apt $gm_missing
    gm_find_cuda || gm_fetch_cuda
}

# gm_configure DIR [CMAKE-ARGUMENT...]: GM_WERROR=ON in the environment makes warnings errors, as in CI.
gm_configure() {
    gm_dir=$1
    shift
    if [ ! -f "$gm_dir/CMakeCache.txt" ] && gm_has ninja; then
        set -- -G Ninja "$@"
    fi
    : > "$gm_dir.log"
    gm_progress "cmake" "$gm_dir.log" \
        cmake -S "$root" -B "$gm_dir" "-DGM_CUDA_INCLUDE=$gm_cuda" "-DGM_WERROR=${GM_WERROR:-OFF}" -DGM_TESTS=ON "$@" ||
        { cat "$gm_dir.log" >&2; return 1; }
}

# gm_build DIR [TARGET...]: on all cores; without targets, all. The end of the log is printed when it fails.
gm_build() {
    gm_dir=$1
    shift
    gm_progress "builds" "$gm_dir.log" cmake --build "$gm_dir" --parallel "$(nproc)" ${1:+--target "$@"} ||
        { tail -n 60 "$gm_dir.log" >&2; return 1; }
}

# Debian's -dev package has no libcjson.a: build one from the distribution's own source package, fetched with a
# package list of its own, so that the system's lists stay as they are. Path in $gm_cjson.
gm_static_cjson() {
    gm_cjson=$1/libcjson.a
    [ -f "$gm_cjson" ] && return 0
    gm_has dpkg-source || gm_apt dpkg-dev
    mkdir -p "$1/lists/partial" "$1/parts" "$1/source"
    for gm_file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$gm_file" ] && sed -n 's/^deb /deb-src /p' "$gm_file" > "$1/parts/$(basename "$gm_file" .list).list"
    done
    for gm_file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$gm_file" ] && sed 's/^Types:.*/Types: deb-src/' "$gm_file" > "$1/parts/$(basename "$gm_file")"
    done
    echo "setup: building libcjson.a from the distribution's source package"
    (
        cd "$1/source" || exit 1
        rm -rf ./*
        set -- -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$1/parts" \
            -o "Dir::State::lists=$1/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
            -o APT::Sandbox::User=root
        apt-get "$@" update && apt-get "$@" source cjson
    ) > "$1/apt.log" 2>&1 || { tail -n 20 "$1/apt.log" >&2; gm_die "no source package of cjson"; }
    # the compiler's flags are those of the rest: position independent, symbols of the archive hidden
    (
        cd "$1" && cc -O2 -g -fPIC -fvisibility=hidden -DCJSON_HIDE_SYMBOLS -c source/*/cJSON.c -o cJSON.o &&
            ar rcs libcjson.a cJSON.o
    ) || gm_die "cJSON.c does not compile"
}

# Non-zero, with a line, if a program needs more than the C library.
gm_needs_only_libc() {
    gm_needs=$(LC_ALL=C readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux.*)\.so\.[0-9]+$')
    [ -z "$gm_needs" ] || gm_die "$1 still needs" $gm_needs
}

gm_portable() {
    mkdir -p "$1"
    gm_out=$(cd "$1" && pwd)
    gm_static_cjson "$gm_out/cjson"
    gm_configure "$gm_out" -DGM_STATIC_DEPS=ON "-DGM_CJSON_STATIC=$gm_cjson" &&
        gm_build "$gm_out" || gm_die "the portable build failed"
    gm_needs_only_libc "$gm_out/daemon/gpumuxd"
    gm_needs_only_libc "$gm_out/daemon/mux-ctl"
    gm_needs_only_libc "$gm_out/shim/libgpumux.so"
    rm -rf "$gm_out/cjson/lists" "$gm_out/cjson/source"
    echo "setup: $gm_out is ready to move; symbols need glibc" \
        "$(readelf -V "$gm_out/daemon/gpumuxd" "$gm_out/shim/libgpumux.so" |
            grep -o 'GLIBC_[0-9.]*' | sort -u -V | tail -n 1 | sed 's/GLIBC_//') or newer"
}

case $0 in
*/setup.sh | setup.sh)
    set -u
    root=$(cd "$(dirname "$0")/.." && pwd)
    case ${1:-} in
    --cupti) gm_install && gm_fetch_cupti && echo "setup: CUPTI's headers are there" ;;
    --sanitizer) gm_install && gm_fetch_sanitizer && echo "setup: the Compute Sanitizer API is there" ;;
    --user) gm_install user && gm_configure "$root/build" -DGM_TESTS=OFF && gm_build "$root/build" && echo "setup: build/ is ready" ;;
    '') gm_install && gm_configure "$root/build" -DGM_GPU_PROGRAMS=ON && gm_build "$root/build" && echo "setup: build/ is ready" ;;
    --portable) gm_install && gm_portable "${2:-$root/build-portable}" ;;
    *) gm_die "usage: sh tests/setup.sh [--user | --cupti | --sanitizer | --portable [DIR]]" ;;
    esac
    ;;
esac
