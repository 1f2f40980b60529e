# SPDX-License-Identifier: MIT
# berth.bash: bash completion of the program `berth`. The program itself returns all commands, options and values
# (`berth help --complete`, src/cli/complete.c), so this file contains none of them.

# _berth_files WORD [ENDING...]: offers folders, and files with one of the endings. Without endings it offers all files, with "/" folders only.
_berth_files() {
    local cur=$1 ending
    shift
    compopt -o filenames 2>/dev/null
    if [ $# -eq 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    for ending in "$@"; do
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X "!*$ending" -- "$cur")
    done
}

_berth_from() {
    local cur=$1
    shift
    mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur")
}

# _berth_value WORD TAKES: offers values for WORD. TAKES is the program's description of them (src/cli/complete.c).
_berth_value() {
    local cur=$1 takes=$2
    case "$takes" in
        "") ;; # a number or free text
        "*") _berth_files "$cur" ;;
        .* | /) # shellcheck disable=SC2086
            _berth_files "$cur" $takes ;;
        @*) _berth_from "$cur" "$("$berth" help --complete "$takes" 2>/dev/null)" ;;
        *) _berth_from "$cur" "$takes" ;;
    esac
}

_berth() {
    local berth=${COMP_WORDS[0]} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} line names takes
    local -a path=() lines=() operands=()
    COMPREPLY=()
    # Finds the command or the part of a command that has options. The words before it are commands.
    while mapfile -t lines < <("$berth" help --complete "${path[@]}" 2>/dev/null) && [[ ${lines[0]} != -* ]]; do
        [ ${#lines[@]} -gt 0 ] || return
        if [ "$COMP_CWORD" -le $((${#path[@]} + 1)) ]; then
            _berth_from "$cur" "${lines[*]}" --help "$([ ${#path[@]} -gt 0 ] || echo --version)"
            return
        fi
        path+=("${COMP_WORDS[${#path[@]} + 1]}")
    done
    for line in "${lines[@]}"; do
        names=${line%%=*} takes=${line#*=}
        if [ -z "$names" ]; then
            IFS='|' read -ra operands <<< "$takes"
        elif [ "$names" != "$line" ] && [[ $prev == -* && " $names" == *" $prev "* ]]; then
            _berth_value "$cur" "$takes"
            return
        fi
    done
    if [[ $cur == -* ]]; then
        _berth_from "$cur" "$(printf '%s\n' "${lines[@]%%=*}")"
        return
    fi
    local at=$((COMP_CWORD - ${#path[@]} - 1)) last=$((${#operands[@]} - 1))
    _berth_value "$cur" "${operands[at < last ? at : last < 0 ? 0 : last]}"
}
complete -F _berth berth
