# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# bash completion for kvseal. Commands and options are asked of kvseal itself.

_kvseal()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local kvseal=${COMP_WORDS[0]} command=${COMP_WORDS[1]} words

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words=$("$kvseal" --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$current")
        return
    fi
    case $previous in
    --jobs | -j)
        mapfile -t COMPREPLY < <(compgen -W "1 2 4 8 16 $(nproc)" -- "$current")
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        words=$("$kvseal" "$command" --help 2>/dev/null | grep -oE -- '^ +(-[a-z], )?--[a-z-]+' |
            grep -oE -- '--[a-z-]+')
        mapfile -t COMPREPLY < <(compgen -W "$words --help" -- "$current")
        return
    fi
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -F _kvseal kvseal
