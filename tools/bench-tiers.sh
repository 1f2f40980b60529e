#!/bin/bash
# bench-tiers.sh BUILD_DIR [PART...]: measures each tier of kernels of this machine against the reference's library for that tier.
# Writes all measurements to docs/data/tiers-MACHINE.csv and docs/data/curves-MACHINE.csv, and a row per tier to the tables of
# docs/user/speed.md.
#
# A part is TIER/kernels, TIER/ops, TIER/curves, TIER/TYPE or `write`. TIER/curves measures products with 1 to 64 columns. TIER/TYPE
# measures a model of 1.1B weights of TYPE (q4_K, q8_0 or f16) through libllama. `write` writes the tables and the CSV files from the
# parts that have been measured. Without a part, the script measures all parts that are missing in BUILD_DIR/tiers, then runs
# `write`. A complete run takes about fifteen minutes per tier and 3 GB of disk. An interrupted run continues with the next part.
# PIN='taskset -c 1' is put before every measurement. NAMES='q8_0 q4_K' limits the curves to these types and ops, and keeps the
# curves of the others. The first run requires npm, which fetches the reference.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
out=$build/tiers
mkdir -p "$out"
reference=$(tools/fetch-reference.sh)
machine=$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -1 | tr -s ' ()' '-' | sed 's/-R-/-/g; s/-Processor//; s/-@//; s/-*$//')
data=docs/data/tiers-$machine.csv curves=docs/data/curves-$machine.csv page=docs/user/speed.md

# The tiers of this machine, oldest first.
tiers() {
    "$build/bin/bench-kernels" -s 0 -m 1 rms_norm 2>/dev/null | sed -n '1s/^kernels \([^,]*\),.*/\1/p' | tr + '\n'
}
# rival TIER: the library that the reference selects on a machine which has this tier and no later one.
rival() {
    case $1 in
        neon | fp16 | fhm) echo armv8.0_1 ;; # the reference has no library with fp16 and without dotprod
        dotprod) echo armv8.2_2 ;;
        i8mm | bf16) grep -qw sve /proc/cpuinfo && echo armv8.6_1 || echo armv8.2_2 ;; # armv8.6_1 requires SVE
        sse42) echo sse42 ;;
        avx) echo sandybridge ;;
        avx2) echo haswell ;;
        avxvnni) echo alderlake ;;
        avx512) echo skylakex ;;
        vnni) grep -q avx512_vbmi /proc/cpuinfo && echo icelake || echo cascadelake ;; # icelake requires VBMI
        amx) echo sapphirerapids ;;
    esac
}

# rival_folder LIBRARY: a folder with the reference's base library and this CPU library only.
rival_folder() {
    local folder=$out/rival-$1
    mkdir -p "$folder"
    ln -sf "$reference"/libggml-base.so "$reference/libggml-cpu-$1.so" "$folder/"
    (cd "$folder" && pwd)
}

types="f32 f16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs mxfp4"
ops="attn_f16 attn_q8_0 experts_q4_K experts_q8_0 experts_f16 rms_norm soft_max rope rope_neox silu swiglu gelu add mul cpy_f16 cont get_rows_q4_K get_rows_q8_0"
columns=1-20,24,32,48,64
curve_names="$types bf16 iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s tq1_0 tq2_0 nvfp4 q1_0 q2_0 experts_q4_K experts_q8_0 experts_f16 attn_f16 attn_q8_0"

# ---- parts ----

# part_curves TIER FOLDER: measures each name in a process of its own, so that PIN can take a lock for a short time.
part_curves() {
    local name
    for name in ${NAMES:-$curve_names}; do
        # shellcheck disable=SC2086
        BERTH_CPU_ISA=$1 BERTH_REFERENCE=$2 ${PIN:-} "$build/bin/bench-kernels" -s 0.05 -m $columns "$name" || return 1
    done
    [ -z "${NAMES:-}" ] || [ ! -f "$out/$1/curves" ] ||
        awk -v names=" $NAMES " '$2 ~ /^[0-9]+$/ && !index(names, " " $1 " ")' "$out/$1/curves"
}

part_run() {
    local tier=${1%/*} what=${1#*/} lib
    lib=$(rival "$tier")
    [ -n "$lib" ] && [ -f "$reference/libggml-cpu-$lib.so" ] || { echo "bench-tiers: $1: the reference has no library for this tier: skipped"; return 0; }
    mkdir -p "$out/$tier"
    echo "bench-tiers: $1 compared with $lib"
    # shellcheck disable=SC2086
    case $what in
        kernels) BERTH_CPU_ISA=$tier BERTH_REFERENCE=$(rival_folder "$lib") ${PIN:-} "$build/bin/bench-kernels" -s 0.1 $types ;;
        ops) BERTH_CPU_ISA=$tier BERTH_REFERENCE=$(rival_folder "$lib") ${PIN:-} "$build/bin/bench-kernels" -s 0.05 $ops ;;
        curves) part_curves "$tier" "$(rival_folder "$lib")" ;;
        *) BERTH_CPU_ISA=$tier RIVAL=$lib TYPES=$what RELEASES=3.22.1 PP=${PP:-64} ${PIN:-} tests/client/client.sh "$build" speed ;;
    esac >"$out/$tier/$what.new" 2>"$out/$tier/$what.log" || { cat "$out/$tier/$what.new" "$out/$tier/$what.log" >&2; return 1; }
    { echo "# $machine $tier $lib $(date +%Y-%m-%d)"; cat "$out/$tier/$what.new"; } >"$out/$tier/$what"
    rm "$out/$tier/$what.new"
}

# ---- tables ----

# rows FILE NAMES BEGIN: the rows of a file of bench-kernels whose names are in NAMES, as CSV: BEGIN, name, columns, the ratio to
# plain weights, the ratio to repacked weights.
rows() {
    awk -v names=" $2 " -v begin="$3" '$2 ~ /^[0-9]+$/ && index(names, " " $1 " ") { print begin "," $1 "," $2 "," $5 "," ($7 == "-" ? "" : $7) }' "$1"
}

# model TIER TYPE: prefill and decode of a model, Berth's speed divided by the reference's.
model() {
    [ -f "$out/$1/$2" ] && awk -v t="$2" '$2 == t { print $5, $8 }' "$out/$1/$2"
}

# tier_rows TIER: all measurements of a tier as CSV.
tier_rows() {
    local tier=$1 begin type
    # shellcheck disable=SC2046
    set -- $(head -qn 1 "$out/$tier/kernels" "$out/$tier"/* 2>/dev/null | sed -n 1p)
    begin="$tier,$4,$5"
    [ ! -f "$out/$tier/kernels" ] || rows "$out/$tier/kernels" "$types" "$begin,product"
    [ ! -f "$out/$tier/ops" ] || rows "$out/$tier/ops" "$ops" "$begin,op"
    for type in q4_K q8_0 f16; do
        # shellcheck disable=SC2046
        set -- $(model "$tier" $type)
        [ $# != 2 ] || printf '%s\n' "$begin,model,$type,prefill,,$1" "$begin,model,$type,decode,,$2"
    done
}

# curve_rows TIER: the times of a tier's curves as CSV.
curve_rows() {
    awk -v tier="$1" 'FNR == 1 { begin = tier "," $4 "," $5 } $2 ~ /^[0-9]+$/ && $1 != "steps:" {
        print begin "," $1 "," $2 "," $3 "," ($4 == "-" ? "" : $4) "," ($6 == "-" ? "" : $6)
    }' "$out/$1/curves"
}

# curve_summary TIER: the row of a tier in the table of curves. A ratio is the reference's time divided by Berth's, over the
# quantised types. A step is a time that exceeds the time of the next larger number of columns by more than 2%, over all types.
curve_summary() {
    awk -F, -v tier="$1" -v machine="$machine" '
        function add(where, x) {
            if (!(where in lo) || x < lo[where]) lo[where] = x
            if (x > hi[where]) hi[where] = x
        }
        function range(where) { return where in lo ? sprintf("%.2f to %.2f", lo[where], hi[where]) : "" }
        $1 == tier && $4 !~ /^(experts|attn)_/ {
            library = $2; date = $3
            if ($4 ~ /^(q|iq|tq|mx|nv)/) {
                if ($7 != "") add($5 == 1 ? "plain1" : "plain", $7 / $6)
                if ($8 != "") add($5 == 1 ? "repacked1" : "repacked", $8 / $6)
            }
            if ($4 == name) { n++; n_steps += us > 1.02 * $6 }
            name = $4; us = $6
        }
        END {
            printf "| %s, %s | %s | %s | %s | %s | %s | %d of %d | %s |\n", machine, tier, library, range("plain1"), range("repacked1"),
                range("plain"), range("repacked"), n_steps, n, date
        }' "$curves"
}

# span TIER COLUMNS FIELD: the least and the largest ratio of a tier's products of quantised types; FIELD is 7 (plain) or 8
# (repacked).
span() {
    awk -F, -v tier="$1" -v m="$2" -v f="$3" '$1 == tier && $4 == "product" && $5 ~ /^(q|iq|mx)/ && $6 == m && $f != "" {
        if (!n++ || $f + 0 < lo) lo = $f + 0
        if ($f + 0 > hi) hi = $f + 0
    } END { if (n) printf "%.2f to %.2f", lo, hi }' "$data"
}

summary_row() {
    local tier=$1 lib day models="" type
    read -r _ _ _ lib day <"$out/$tier/kernels"
    for type in q4_K q8_0 f16; do
        # shellcheck disable=SC2046
        set -- $(model "$tier" $type)
        models="$models $type ${1:--} ${2:--},"
    done
    echo "| $machine, $tier | $lib | $(span "$tier" 256 7) | $(span "$tier" 256 8) | $(span "$tier" 1 7) | $(span "$tier" 1 8) |${models%,} | $day |"
}

# replace FILE BEGIN END: replaces the lines between two marker lines of a file by the standard input.
replace() {
    grep -qxF "$2" "$1" && grep -qxF "$3" "$1" || { echo "bench-tiers: $1 has no line '$2' or no line '$3'" >&2; return 1; }
    awk -v begin="$2" -v end="$3" -v new="$(cat)" '$0 == begin { print; print new; skip = 1 } $0 == end { skip = 0 } !skip' "$1" >"$out/page"
    cat "$out/page" >"$1"
}

# csv_write FILE HEADER PART ROWS: writes the rows of each tier, which the function ROWS prints. A tier without PART keeps its rows.
csv_write() {
    local tier
    [ -f "$1" ] || echo "$2" >"$1"
    {
        echo "$2"
        for tier in $(tiers); do
            if [ -f "$out/$tier/$3" ]; then
                "$4" "$tier"
            else
                grep "^$tier," "$1" || true
            fi
        done
    } >"$out/csv"
    cat "$out/csv" >"$1"
}

# table_write NAME PART ROW: writes a row per tier, which the function ROW prints, to a table of the page. Other rows stay.
table_write() {
    local tier old
    old=$(sed -n "/^<!-- $1:begin -->\$/,/^<!-- $1:end -->\$/p" "$page" | grep '^|')
    for tier in $(tiers); do
        [ ! -f "$out/$tier/$2" ] || old=$(echo "$old" | grep -vF "| $machine, $tier |"; "$3" "$tier")
    done
    echo "$old" | replace "$page" "<!-- $1:begin -->" "<!-- $1:end -->"
}

write() {
    csv_write "$data" "tier,library,date,kind,name,case,plain,repacked" kernels tier_rows
    csv_write "$curves" "tier,library,date,name,columns,berth_us,plain_us,repacked_us" curves curve_rows
    table_write speed kernels summary_row
    table_write curves curves curve_summary
}

if [ $# = 0 ]; then
    for tier in $(tiers); do
        for what in kernels ops curves q4_K q8_0 f16; do
            [ -f "$out/$tier/$what" ] || set -- "$@" "$tier/$what"
        done
    done
    set -- "$@" write
fi
for part in "$@"; do
    case $part in
        write) write ;;
        */*) part_run "$part" ;;
        *) echo "bench-tiers: unknown part '$part': give TIER/kernels, TIER/ops, TIER/curves, TIER/q4_K, TIER/q8_0, TIER/f16 or write" >&2; exit 2 ;;
    esac
done
