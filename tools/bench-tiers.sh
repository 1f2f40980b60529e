#!/bin/bash
# bench-tiers.sh BUILD_DIR [PART...]: each tier of kernels that this machine has beside the reference's library for that tier, and the
# tables of it in docs/user/speed.md. A part is TIER/kernels, TIER/ops or TIER/TYPE (a model of 1.1B weights of that type
# through libllama; q4_K, q8_0, f16), or `write`, which makes the tables of the parts that are there. Without any: all parts that are
# not there yet, in BUILD_DIR/tiers, then `write`. A whole run takes about ten minutes a tier and 3 GB of disk; it may be broken off.
# PIN='taskset -c 1' goes before every measurement. Needs npm for the reference, once.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
out=$build/tiers
mkdir -p "$out"
reference=$(tools/fetch-reference.sh)
machine=$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -1 | tr -s ' ()' '-' | sed 's/-R-/-/g; s/-Processor//; s/-@//; s/-*$//')

# The tiers of the machine, and who they are compared with.
tiers() {
    "$build/bin/bench-kernels" -s 0 -m 1 rms_norm 2>/dev/null | sed -n '1s/^kernels \([^,]*\),.*/\1/p' | tr + '\n'
}
rival() {
    case $1 in
        neon) echo armv8.0_1 ;;
        fp16 | fhm) ;; # the reference has no library of halves without dotprod
        dotprod) echo armv8.2_2 ;;
        i8mm | bf16) grep -qw sve /proc/cpuinfo && echo armv8.6_1 || echo armv8.2_2 ;; # armv8.6_1's needs SVE
        sse42) echo sse42 ;;
        avx) echo sandybridge ;;
        avx2) echo haswell ;;
        avxvnni) echo alderlake ;;
        avx512) echo skylakex ;;
        vnni) grep -q avx512_vbmi /proc/cpuinfo && echo icelake || echo cascadelake ;; # icelake's needs VBMI
        amx) echo sapphirerapids ;;
    esac
}

# A folder with the reference's libraries of which one alone is for the CPU.
rival_folder() {
    local folder=$out/rival-$1
    mkdir -p "$folder"
    ln -sf "$reference"/libggml-base.so "$reference/libggml-cpu-$1.so" "$folder/"
    (cd "$folder" && pwd)
}

types="f32 f16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs mxfp4"
ops="attn_f16 attn_q8_0 experts_q4_K experts_q8_0 experts_f16 rms_norm soft_max rope rope_neox silu swiglu gelu add mul cpy_f16 cont get_rows_q4_K get_rows_q8_0"

# ---- parts ----

part_run() {
    local tier=${1%/*} what=${1#*/} lib
    lib=$(rival "$tier")
    [ -n "$lib" ] && [ -f "$reference/libggml-cpu-$lib.so" ] || { echo "bench-tiers: $1: the reference has no library for it"; return 0; }
    mkdir -p "$out/$tier"
    echo "bench-tiers: $1 beside $lib"
    case $what in
        # shellcheck disable=SC2086
        kernels) BERTH_CPU_ISA=$tier BERTH_REFERENCE=$(rival_folder "$lib") ${PIN:-} "$build/bin/bench-kernels" -s 0.1 $types ;;
        # shellcheck disable=SC2086
        ops) BERTH_CPU_ISA=$tier BERTH_REFERENCE=$(rival_folder "$lib") ${PIN:-} "$build/bin/bench-kernels" -s 0.05 $ops ;;
        *) BERTH_CPU_ISA=$tier RIVAL=$lib TYPES=$what RELEASES=3.22.1 PP=${PP:-64} ${PIN:-} tests/client/client.sh "$build" speed ;;
    esac >"$out/$tier/$what.new" 2>"$out/$tier/$what.log" || { cat "$out/$tier/$what.new" "$out/$tier/$what.log" >&2; return 1; }
    { echo "# $machine $tier $lib $(date +%Y-%m-%d)"; cat "$out/$tier/$what.new"; } >"$out/$tier/$what"
    rm "$out/$tier/$what.new"
}

# ---- tables ----

# Rows of a file of bench-kernels, for names in $2: NAME and the ratios of m = 1, 32, 256, each plain and repacked.
rows() {
    awk -v names=" $2 " '$2 ~ /^[0-9]+$/ && index(names, " " $1 " ") { name = $1; if (!(name in seen)) { seen[name]; order[++n] = name }
        plain[name, $2] = $5; other[name, $2] = $7 == "-" ? "" : $7 }
        END { for (i = 1; i <= n; i++) { x = order[i]; printf "| %s |", x
            for (m = 1; m <= 256; m = m == 1 ? 32 : m * 8) printf wide ? " %s | %s |" : " %s |", plain[x, m], other[x, m]
            print "" } }' wide="$3" "$1"
}

# The line of a model: prompt and decode, Berth over the rival.
model() {
    [ -f "$out/$1/$2" ] && awk -v t="$2" '$2 == t { print $5, $8 }' "$out/$1/$2"
}

tier_section() {
    local tier=$1 head
    head=$(head -1 "$out/$tier/kernels" 2>/dev/null || head -1 "$out/$tier"/* | sed -n 1p)
    # shellcheck disable=SC2086
    set -- $head
    echo
    echo "### $machine, tier $tier, compared with $4, one thread, $5"
    echo
    if [ -f "$out/$tier/kernels" ]; then
        echo "| type | m=1 plain | m=1 repacked | m=32 plain | m=32 repacked | m=256 plain | m=256 repacked |"
        echo "|---|---|---|---|---|---|---|"
        rows "$out/$tier/kernels" "$types" 1
        echo
    fi
    if [ -f "$out/$tier/ops" ]; then
        echo "| op | m=1 | m=32 | m=256 |"
        echo "|---|---|---|---|"
        rows "$out/$tier/ops" "$ops" 0
        echo
    fi
    for type in q4_K q8_0 f16; do
        set -- $(model "$tier" $type)
        [ $# = 2 ] && echo "A model of 1.1B weights in $type through libllama: prefill $1, decode $2."
    done
    return 0
}

# least and most of a column of the kernels' table, of quantised types
span() {
    rows "$out/$1/kernels" "$types" 1 | grep -E '^\| (q|iq|mx)' | cut -d'|' -f"$2" | awk 'NF { v = $1 + 0; if (!n++ || v < lo) lo = v; if (v > hi) hi = v }
        END { if (n) printf "%.2f to %.2f", lo, hi }'
}

summary_row() {
    local tier=$1 lib day models="" type
    read -r _ _ _ lib day <"$out/$tier/kernels"
    for type in q4_K q8_0 f16; do
        set -- $(model "$tier" $type)
        models="$models $type ${1:--} ${2:--},"
    done
    echo "| $machine, $tier | $lib | $(span "$tier" 7) | $(span "$tier" 8) | $(span "$tier" 3) | $(span "$tier" 4) |${models%,} | $day |"
}

# replace FILE BEGIN END: what stands between two lines of the file by what comes in; they must be there.
replace() {
    grep -qxF "$2" "$1" && grep -qxF "$3" "$1" || { echo "bench-tiers: $1 lacks '$2' or '$3'" >&2; return 1; }
    awk -v begin="$2" -v end="$3" -v new="$(cat)" '$0 == begin { print; print new; skip = 1 } $0 == end { skip = 0 } !skip' "$1" >"$out/page"
    cat "$out/page" >"$1"
}

write() {
    local tier begin="<!-- tiers:$machine:begin -->" end="<!-- tiers:$machine:end -->"
    grep -qxF "$begin" docs/user/speed.md || sed -i "s|^<!-- tiers:more -->\$|$begin\n$end\n\n&|" docs/user/speed.md
    for tier in $(tiers); do
        [ -d "$out/$tier" ] && tier_section "$tier"
    done | cat -s | replace docs/user/speed.md "$begin" "$end"
    { # rows of other machines stay as they are
        sed -n '/^<!-- speed:begin -->$/,/^<!-- speed:end -->$/p' docs/user/speed.md | grep '^|' | grep -v "^| $machine, " || true
        for tier in $(tiers); do
            [ -f "$out/$tier/kernels" ] && summary_row "$tier"
        done
    } | replace docs/user/speed.md "<!-- speed:begin -->" "<!-- speed:end -->"
}

if [ $# = 0 ]; then
    for tier in $(tiers); do
        for what in kernels ops q4_K q8_0 f16; do
            [ -f "$out/$tier/$what" ] || set -- "$@" "$tier/$what"
        done
    done
    set -- "$@" write
fi
for part in "$@"; do
    case $part in
        write) write ;;
        */*) part_run "$part" ;;
        *) echo "bench-tiers: '$part' is no part: TIER/kernels, TIER/ops, TIER/q4_K, TIER/q8_0, TIER/f16 or write" >&2; exit 2 ;;
    esac
done
