#!/bin/sh
# mux-ctl without a daemon: help with examples for each command, whatever asks for it; words and options with a mistake
# are answered by one line that says what is meant; completions of bash, zsh and fish, tried where these shells are.
set -u
ctl=$BUILD/daemon/mux-ctl
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-commands.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
unset GPUMUX_SOCKET
export XDG_RUNTIME_DIR="$dir"

fail() {
    echo "mux_commands: FAILED: $*"
    exit 1
}

# --- help ---
commands=$(sed -n 's/^MUX_COMMAND(\([a-z]*\),.*/\1/p' "$SOURCE/daemon/ctl/commands.def")
"$ctl" help > "$dir/help" || fail "help ended with $?"
"$ctl" -h | cmp - "$dir/help" || fail "-h is not help"
"$ctl" --help | cmp - "$dir/help" || fail "--help is not help"
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' "$dir/help")" -le 80 ] || fail "help is too wide"
for command in $commands; do
    grep -q "^  $command  *[A-Z]" "$dir/help" || fail "help lacks $command: $(cat "$dir/help")"
    "$ctl" help "$command" > "$dir/one" || fail "help $command ended with $?"
    grep -q "^Usage: mux-ctl $command" "$dir/one" || fail "help $command: $(cat "$dir/one")"
    sed '1,/^Examples:$/d' "$dir/one" | grep -q "mux-ctl $command" || fail "help $command has no example: $(cat "$dir/one")"
    "$ctl" "$command" -h | cmp - "$dir/one" || fail "$command -h is not help $command"
done

"$BUILD/daemon/gpumux-keeper" --help | grep -q '^usage: gpumux-keeper --socket PATH' || fail "gpumux-keeper --help"
[ "$(cd "$SOURCE" && grep -rhoE 'listen=[0-9]{4,}|localhost:[0-9]+' README.md docs daemon/README.md daemon/ctl/commands.def | grep -oE '[0-9]+' | sort -u | wc -l)" = 1 ] ||
    fail "the pages name several ports for metrics"

# --- mistakes: one line each ---
# says CODE TEXT WORD...
says() {
    code=$1 text=$2
    shift 2
    "$ctl" "$@" > "$dir/out" 2> "$dir/said"
    ended=$?
    [ $ended = "$code" ] || fail "mux-ctl $*: ended with $ended: $(cat "$dir/said")"
    [ ! -s "$dir/out" ] || fail "mux-ctl $*: writes to standard output"
    [ "$(wc -l < "$dir/said")" = 1 ] || fail "mux-ctl $*: $(cat "$dir/said")"
    grep -qF -- "$text" "$dir/said" || fail "mux-ctl $*: does not say \"$text\": $(cat "$dir/said")"
}
says 1 'unknown command "stauts": did you mean status?' stauts
says 1 'unknown command "comp": did you mean completion?' comp
says 1 'unknown command "frobnicate": mux-ctl help lists them' frobnicate
says 1 'unknown command "x": mux-ctl help lists them' x
says 1 'unknown command "stat": did you mean status?' help stat
says 1 '"status" is one word too many' help help status
says 1 'what to do? mux-ctl help lists the commands'
says 1 'unknown option --jsno: did you mean --json?' status --jsno
says 1 'unknown option --wach=2s: did you mean --watch?' status --wach=2s
says 1 'unknown option --frobnicate: mux-ctl status --help lists them' status --frobnicate
says 1 '--sort: "size" is not state, memory, run, wait, user, name or pid' ps --sort=size
says 1 'set: "clas=batch" is neither a pid nor a setting: did you mean class=?' set 1 clas=batch
says 1 'set: "frob" is neither a pid nor a setting (class=,' set frob
says 1 'class: "fast" is not auto, latency, interactive or batch' set 1 class=fast
says 1 'pause: "0" is no pid' pause 0
says 1 'resume: which program? say a pid, --command=NAME or --user=NAME' resume
says 1 'pause: there is no user "nobody-of-that-name"' pause --user=nobody-of-that-name
says 1 'forget: --command takes a program' forget --command=a/b
says 1 'config: "relaod": did you mean reload?' config relaod
says 1 'config: say show, explain, check or reload' config
says 1 'completion: "bahs": did you mean bash?' completion bahs
says 1 'completion: say bash, zsh or fish' completion
says 1 'metrics: --listen or --unix, not both' metrics --listen=1 --unix="$dir/none"
says 1 '--class: "fast" is not auto, latency, interactive or batch' run --class=fast -- true
says 1 '--cap: "6X" is not a size' run --cap=6X -- true
for command in status ps log trim 'pause 1' 'config show' 'config check' forget; do
    says 3 'gpumuxd is not running' --socket "$dir/none" $command
done

# --- completions ---
for shell in bash zsh fish; do
    "$ctl" completion $shell > "$dir/$shell" || fail "completion $shell ended with $?"
    for command in $commands; do grep -q "$command" "$dir/$shell" || fail "$shell does not know $command"; done
done
# in_bash WORD...: what bash offers for the last one.
in_bash() {
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { [[ $2 == nospace ]] || echo "compopt $*"; }; gpumuxd() { "$BUILD/daemon/gpumuxd" "$@"; }; case $1 in gpumuxd) _gpumuxd ;; *) _mux_ctl ;; esac 2> /dev/null
        echo ${COMPREPLY[*]}' "$dir/bash" "$@"
}
# expect RESULT EXPECTED WHAT
expect() {
    [ "$1" = "$2" ] || fail "$3 offers: $1"
}
if command -v bash > /dev/null; then
    bash -n "$dir/bash" || fail "bash cannot read its completions"
    expect "$(in_bash mux-ctl sta)" status "bash: sta"
    expect "$(in_bash mux-ctl status --w)" --watch= "bash: status --w"
    expect "$(in_bash mux-ctl config '')" "$(echo $(sed -n 's/^    config) known="\(.*\)" ;;/\1/p' "$dir/bash"))" "bash: config"
    expect "$(in_bash mux-ctl config re)" reload "bash: config re"
    expect "$(in_bash mux-ctl set cl)" class= "bash: set cl"
    expect "$(in_bash mux-ctl help com)" completion "bash: help com"
    case " $(in_bash mux-ctl run -- ca) " in *" cat "*) ;; *) fail "bash: no programs behind run --" ;; esac
    expect "$(in_bash mux-ctl run -- cat sta)" "compopt -o default" "bash: a program's words"
    # process ids and names are asked of mux-ctl itself; a name that a shell would read is not offered
    mkdir "$dir/bin" && cat > "$dir/bin/mux-ctl" << 'END' && chmod 755 "$dir/bin/mux-ctl"
#!/bin/sh
case $* in
"ps -q") printf '4711\n4712\n' ;;
"ps --json") echo '{"apps":[{"name":"train.py"},{"name":"$(touch '"$0"'.run)"},{"name":"chat"}],"users":[]}' ;;
esac
END
    expect "$(PATH=$dir/bin:$PATH in_bash mux-ctl pause 47)" "4711 4712" "bash: pause 47"
    # values: as bash splits them, in one word, and behind a blank
    expect "$(PATH=$dir/bin:$PATH in_bash mux-ctl pause --command = '')" "chat train.py" "bash: pause --command="
    [ ! -e "$dir/bin/mux-ctl.run" ] || fail "bash: a program's name was executed"
    expect "$(in_bash mux-ctl run --class = '')" "auto latency interactive batch" "bash: run --class="
    expect "$(in_bash mux-ctl run --class=ba)" "--class=batch" "bash: run --class=ba"
    expect "$(in_bash mux-ctl run --class ba)" batch "bash: run --class ba"
    expect "$(in_bash mux-ctl set 1 paused = e)" evicted "bash: set paused=e"
    expect "$(in_bash mux-ctl ps --sort = m)" memory "bash: ps --sort=m"
    expect "$(in_bash mux-ctl ps --user = roo)" root "bash: ps --user=roo"
    expect "$(in_bash gpumuxd --fai)" --fair= "bash: gpumuxd --fai"
    expect "$(in_bash gpumuxd --fair = '')" "users programs" "bash: gpumuxd --fair="
    expect "$(in_bash gpumuxd --log-level = d)" debug "bash: gpumuxd --log-level=d"
    # files are offered where a file is meant, and nowhere else
    files() {
        case "$(in_bash "$@")" in *"compopt -o default"*) ;; *) return 1 ;; esac
    }
    for words in 'ps --socket =' 'trace export x' 'trace record -o x' 'run -- cat x'; do files mux-ctl $words || fail "bash: no files behind $words"; done
    for words in 'ps --sort = x' 'set x' 'status x' 'status --watch = x' 'run --class = x' 'config x' 'pause --command = x'; do
        ! PATH=$dir/bin:$PATH files mux-ctl $words || fail "bash: files behind $words"
    done
    files gpumuxd --disk = x && ! files gpumuxd --slice = x && ! files gpumuxd x || fail "bash: files of gpumuxd"
    # a daemon that hangs does not keep the shell
    printf '#!/bin/sh\nexec sleep 60\n' > "$dir/bin/mux-ctl"
    begun=$(date +%s)
    expect "$(PATH=$dir/bin:$PATH in_bash mux-ctl set cl)" class= "bash: set cl, and the daemon hangs"
    [ $(($(date +%s) - begun)) -lt 30 ] || fail "bash: waits for a daemon that hangs"
fi
if command -v zsh > /dev/null; then
    zsh -n "$dir/zsh" || fail "zsh cannot read its completions"
    # What compadd and _describe are given.
    in_zsh() {
        zsh -fc 'compdef() { : }; _describe() { print -l -- ${(P)2} }
            compadd() { print -l -- ${(P)@[-1]} }; _files() { print files }; compset() { : }
            gpumuxd() { "$BUILD/daemon/gpumuxd" "$@" }
            . "$0"; words=("$@"); CURRENT=$#; case $1 in gpumuxd) _gpumuxd ;; *) _mux_ctl ;; esac' "$dir/zsh" "$@"
    }
    in_zsh mux-ctl '' | grep -q '^status:Shows each GPU,' || fail "zsh: no commands: $(in_zsh mux-ctl '')"
    in_zsh mux-ctl status '' | grep -qx -- '--watch=' || fail "zsh: status: $(in_zsh mux-ctl status '')"
    in_zsh mux-ctl run --class=b | grep -qx batch || fail "zsh: run --class=: $(in_zsh mux-ctl run --class=b)"
    ! in_zsh mux-ctl ps --sort= | grep -q files || fail "zsh: files behind --sort="
    in_zsh mux-ctl ps --socket= | grep -qx files || fail "zsh: no files behind --socket="
    in_zsh gpumuxd --fair= | grep -qx users || fail "zsh: gpumuxd --fair=: $(in_zsh gpumuxd --fair=)"
    in_zsh mux-ctl config '' | grep -qx reload || fail "zsh: config: $(in_zsh mux-ctl config '')"
fi
if command -v fish > /dev/null; then
    in_fish() {
        HOME=$dir PATH=$BUILD/daemon:$PATH fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$dir/fish" "$1"
    }
    in_fish 'mux-ctl sta' | grep -q '^status' || fail "fish: sta: $(in_fish 'mux-ctl sta')"
    in_fish 'mux-ctl status --w' | grep -q '^--watch' || fail "fish: status --w: $(in_fish 'mux-ctl status --w')"
    in_fish 'mux-ctl run --class=b' | grep -q '^--class=batch' || fail "fish: run --class=b: $(in_fish 'mux-ctl run --class=b')"
    in_fish 'mux-ctl set 1 class=b' | grep -q '^class=batch' || fail "fish: set class=b: $(in_fish 'mux-ctl set 1 class=b')"
    in_fish 'gpumuxd --fair=' | grep -q '^--fair=users' || fail "fish: gpumuxd --fair=: $(in_fish 'gpumuxd --fair=')"
    [ -z "$(in_fish "mux-ctl ps --sort=/")" ] || fail "fish: files behind --sort="
    in_fish 'mux-ctl config re' | grep -q '^reload' || fail "fish: config re: $(in_fish 'mux-ctl config re')"
fi
for shell in bash zsh fish; do
    command -v $shell > /dev/null || echo "not checked in $shell: it is not here"
done
echo "help, mistakes and completions are as they should be"
