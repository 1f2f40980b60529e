# SPDX-License-Identifier: MIT
# berth.bash: completion of the program `berth` in bash. Commands, parts and options are asked of the program itself (--help), so
# that they are always those of the one that is called.

# The first words of the indented lines of a list in a help text: commands or parts.
_berth_words() {
    "$@" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p'
}

_berth_options() {
    "$@" --help 2>/dev/null | sed -n 's/^ \{2,6\}\(-[A-Za-z], \)\{0,1\}\(--[a-z-]*\).*/\1\2/p' | tr -d ','
}

# Does this option of a command have a value? Its line of the help says so: --name VALUE.
_berth_takes_value() {
    local option=$1
    shift
    [[ $option == -* ]] && "$@" --help 2>/dev/null | grep -E -- "^ {2,6}(-[A-Za-z], )?(-[A-Za-z], )?$option(,| )" | grep -qE -- '--[a-z-]+ [A-Z]'
}

# Files of the given endings (all files if none), and folders.
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

_berth() {
    local berth=${COMP_WORDS[0]} command=${COMP_WORDS[1]} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local -a path=("$berth" "$command")
    local n_options=2 # words before the options
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _berth_from "$cur" "$(_berth_words "$berth")" --help --version
        return
    fi
    if [ "$command" = gguf ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            _berth_from "$cur" "$(_berth_words "$berth" gguf)" --help
            return
        fi
        path+=("${COMP_WORDS[2]}")
        n_options=3
    fi
    case "$command:$prev" in
        map:-o | map:--out) _berth_files "$cur" .svg .html; return ;;
        run:--lora) _berth_files "$cur" .gguf; return ;;
        run:--map) _berth_files "$cur" .svg .html .json; return ;;
        bench:--format | bench:--output) _berth_from "$cur" md csv json; return ;;
        bench:-o | bench:--out | plan:-o | plan:--out | run:--trace | run:-f | run:--file | imatrix:-o | imatrix:--out) _berth_files "$cur"; return ;;
        *:-m | *:--model) _berth_files "$cur" .gguf; return ;;
        imatrix:-f | imatrix:--file) _berth_files "$cur"; return ;;
        *:--cache-type) _berth_from "$cur" f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl; return ;;
        gguf:-o | gguf:--out) _berth_files "$cur" .gguf; return ;;
        gguf:--imatrix) _berth_files "$cur" .gguf .dat; return ;;
        *:-d | *:--device) _berth_from "$cur" "$("$berth" devices --json 2>/dev/null | grep -o '"name": "[^"]*", "description"' | cut -d'"' -f4)"; return ;;
    esac
    if [[ $cur == -* ]]; then
        _berth_from "$cur" "$(_berth_options "${path[@]}")"
        return
    fi
    if [ "$COMP_CWORD" -gt $n_options ] && _berth_takes_value "$prev" "${path[@]}"; then
        return # a number or free text
    fi
    case "$command" in
        run | bench | fit | explain) _berth_files "$cur" .gguf ;;
        plan | map) _berth_files "$cur" .csv .json .ggraph .ggraph.gz .gguf ;;
        imatrix) _berth_files "$cur" .gguf .txt ;;
        client) _berth_files "$cur" / ;; # folders alone
        verify) _berth_files "$cur" .csv .json ;;
        gguf)
            if [ "${path[2]}" = quantize ] && [ "$COMP_CWORD" -eq 5 ]; then
                _berth_from "$cur" f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs tq1_0 tq2_0 mxfp4
            else
                _berth_files "$cur" .gguf
            fi
            ;;
        ops) _berth_from "$cur" "$("$berth" ops --json 2>/dev/null | grep -o '"op": "[^"]*"' | cut -d'"' -f4)" ;;
    esac
}
complete -F _berth berth
