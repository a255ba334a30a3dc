#!/bin/sh
# The pages of the manual: every option, command and environment variable that the programs know is there, and the
# pages have no mistake that groff or mandoc finds, where these are.
set -u
pages=$BUILD/docs/man
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-manual.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "manual: FAILED: $*"
    exit 1
}

# plain PAGE: its text without roff.
plain() {
    sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' -e 's/^\.[A-Z]* //' "$pages/$1"
}

# options_of COMMAND...: the long options that its help lists.
options_of() {
    "$@" --help | sed -n 's/^ *\(-[a-z], \)\{0,1\}--\([a-z-]*\).*/\2/p'
}

# --- the help: argp breaks a line in the wrong place now and then, where another wording helps ---
"$BUILD/daemon/gpumuxd" --help | grep -nE '^ {7,28}[^ ]|^ {30,}|^ +$' > "$dir/bad" && fail "gpumuxd --help: $(cat "$dir/bad")"

# --- gpumuxd(8) and gpumux.conf(5) ---
plain gpumuxd.8 > "$dir/gpumuxd"
plain gpumux.conf.5 > "$dir/conf"
options_of "$BUILD/daemon/gpumuxd" > "$dir/names"
[ "$(wc -l < "$dir/names")" -gt 20 ] || fail "the help of gpumuxd has no options: $(cat "$dir/names")"
while read -r option; do
    grep -Eq -- "^--$option(\$|=)" "$dir/gpumuxd" || fail "gpumuxd(8) lacks --$option"
    case $option in
    check | config | drain | user | help | version) ! grep -q "^$option = " "$dir/conf" || fail "gpumux.conf(5) has $option" ;;
    *) grep -q "^$option = [^ ]" "$dir/conf" || fail "gpumux.conf(5) lacks $option" ;;
    esac
done < "$dir/names"

# --- mux-ctl(1): each command's part has its options; those that all have stand before ---
plain mux-ctl.1 > "$dir/mux-ctl"
commands=$(sed -n 's/^MUX_COMMAND(\([a-z]*\),.*/\1/p' "$SOURCE/daemon/ctl/commands.def")
[ "$(echo "$commands" | wc -l)" -ge 8 ] || fail "commands.def has only: $commands"
for command in $commands; do
    sed -n "/^mux-ctl $command /,/^mux-ctl [^$(echo "$command" | cut -c 1)]/p" "$dir/mux-ctl" > "$dir/part"
    [ -s "$dir/part" ] || fail "mux-ctl(1) lacks the command $command"
    options_of "$BUILD/daemon/mux-ctl" "$command" > "$dir/names"
    [ -s "$dir/names" ] || fail "the help of mux-ctl $command has no options"
    while read -r option; do
        case $option in help | socket) part=mux-ctl ;; *) part=part ;; esac
        grep -Eq -- "(^|^-[a-z], )--$option(\$|=)" "$dir/$part" || fail "mux-ctl(1): $command lacks --$option"
    done < "$dir/names"
done

# --- environment variables ---
# variables FOLDER...: GPUMUX_... that its sources look up.
variables() {
    grep -rhoE '"GPUMUX_[A-Z_]+"' "$@" --include='*.c' --include='*.h' | tr -d '"' | sort -u
}
variables "$SOURCE"/shim/[!p]* "$SOURCE/common" > "$dir/names" # the profiler is none of the program's
[ "$(wc -l < "$dir/names")" -ge 8 ] || fail "the library looks up only: $(cat "$dir/names")"
grep -ohE 'GPUMUX_[A-Z_]+' "$pages/libgpumux.7" | sort -u > "$dir/told"
diff "$dir/names" "$dir/told" > "$dir/diff" || fail "libgpumux(7): variables (<: lacking, >: nobody looks it up): $(cat "$dir/diff")"
for variable in $(variables "$SOURCE/daemon/ctl"); do
    grep -q "$variable" "$pages/mux-ctl.1" "$pages/libgpumux.7" || fail "no page has $variable"
done

# --- the pages themselves ---
for page in mux-ctl.1 gpumux.conf.5 gpumux.7 libgpumux.7 gpumuxd.8 gpumux-keeper.8; do
    ! grep -n '@' "$pages/$page" || fail "$page: a word is not filled in"
    sed -n '/^\.SH SEE ALSO/,$p' "$pages/$page" | sed -n 's/^\.BR \([a-z.\\-]*\) (\([0-9]\)).*/\1.\2/p' | tr -d '\\' > "$dir/others"
    [ -s "$dir/others" ] || fail "$page names no other page"
    while read -r other; do [ -f "$pages/$other" ] || fail "$page names $other, which is not there"; done < "$dir/others"
    if command -v groff > /dev/null; then
        groff -ww -man -Tutf8 "$pages/$page" 2> "$dir/said" > "$dir/out" || fail "$page: groff failed: $(cat "$dir/said")"
        [ ! -s "$dir/said" ] || fail "$page: $(cat "$dir/said")"
    fi
    if command -v mandoc > /dev/null; then
        said=$(mandoc -Tlint "$pages/$page" 2>&1) || fail "$page: $said"
    fi
done
echo "all options, commands and variables are in the manual"
