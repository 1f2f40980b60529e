#!/bin/sh
# measured.sh [PROGRAM]: compares the sizes that the allocator of the 2023 API measures for random graphs with the sizes that the
# ggml of 2023-11-17 measured for the same graphs. The data directory (BERTH_DATA, default ../shared) contains measure.c, from which
# PROGRAM is built, and measured.tsv. Runs in the root of the sources.
set -eu
then=${BERTH_DATA:-../shared}/abi/2023/measured.tsv
if [ $# -eq 0 ] || [ ! -r "$then" ]; then
    echo "skipped: $then or measure.c in its folder does not exist (set BERTH_DATA and configure the tests again)"
    exit 77
fi
now=$(mktemp)
trap 'rm -f "$now"' EXIT
for leafs in 0 1; do # 1: leaves are destinations of copies
    "$1" 1 1000 $leafs >>"$now"
done
# A measured size includes 31 bytes for memory that is not aligned.
awk -F '\t' -v slack=31 '
    NR == FNR { then[$1, $2] = $4; next }
    ($1, $2) in then {
        n[$2]++
        larger[$2] += $4 > then[$1, $2] + slack
        equal[$2] += $4 >= then[$1, $2] && $4 <= then[$1, $2] + slack
        sum[$2] += $4 - slack
        sum_then[$2] += then[$1, $2]
    }
    END {
        for (leafs = 0; leafs < 2; leafs++) {
            printf "%s copies into leafs: %d graphs, %d equal, %d larger, %.4f in sum\n", leafs ? "with" : "without",
                n[leafs], equal[leafs], larger[leafs], sum[leafs] / sum_then[leafs]
            bad += n[leafs] != 1000 || larger[leafs] > 0 || sum[leafs] > sum_then[leafs]
        }
        exit bad + (equal[0] != 1000) > 0
    }' "$then" "$now"
