#!/bin/bash
# SPDX-License-Identifier: MIT
# make-abi-table.sh FOLDER >cmake/abi.tsv: writes the structs, enums, constants and public functions of a release of the reference
# as one table. cmake/abi.cmake compares each build of Berth with it. FOLDER holds the tables that a compiler extracted from the
# reference's headers; a relative path starts at the root of the repository. All values are the reference's. Berth's headers only
# determine in which header a name is declared. A name that no header of Berth declares is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '3,6s/^# \{0,1\}//p' "tools/$(basename "$0")"; exit 2; }

printf 'kind\theader\tname\tfield\tvalue\tsize\n'
for table in structs blocks enums constants functions; do
    awk -F'\t' -v OFS='\t' -v table=$table 'FNR > 1 {
        if (table == "structs") print "struct", $2, $3, $5, $6
        if (table == "blocks") print "struct", $1, $2, $4, $5
        if (table == "enums") print "enum", $2, $3, $4, "-"
        if (table == "constants" && $3 !~ /"/) print "constant", $2, $2, $3, "-"
        if (table == "functions" && system("test -f include/" $1) == 0) print "function", $2, $3, $4 == "" ? "void" : $4, "-", $1
    }' "$1/$table.tsv"
done | awk -F'\t' -v OFS='\t' '
# Berth declares the names of ggml in public headers and in headers of src.
FILENAME != "-" {
    if (FNR == 1) { header = FILENAME; sub(/^(include|src)\//, "", header) }
    if (match($0, /^(typedef )?(struct|enum) [a-z0-9_]+ \{/)) { split($0, word, " "); declare(word[$1 ~ /^typedef/ ? 3 : 2], word[1]) }
    if (match($0, /^\} [A-Za-z0-9_]+;/)) declare(substr($0, 3, RLENGTH - 3), "type")
    if (match($0, /^# *define [A-Z0-9_]+ /)) { sub(/^# */, "#"); split($0, word, " "); declare(word[2], "constant") }
    next
}
$1 == "function" { print $1, $6, $2, $3, $4, $5; next }
{
    if (!($2 in header_of)) { print "make-abi-table: no header of Berth declares " $2 > "/dev/stderr"; bad = 1; next }
    if ($1 == "struct") $1 = kind_of[$2]
    # These values may be larger in Berth: its own types and ops follow those of ggml, and a build may choose longer names.
    if ($3 == "GGML_TYPE_COUNT" || $3 == "GGML_OP_COUNT" || $2 == "GGML_MAX_NAME") $1 = "least"
    # The table assumes names of 64 bytes; structs that contain a name grow with GGML_MAX_NAME.
    if ($2 == "ggml_tensor" && $4 > 256) $4 = $4 " + GGML_MAX_NAME - 64"
    if ($2 == "ggml_tensor" && ($3 == "name" || $3 == "(whole)")) $5 = $5 " + GGML_MAX_NAME - 64"
    if ($2 == "GGML_BACKEND_API_VERSION") $4 = $4 " + (GGML_MAX_NAME - 64) * 1000"
    print $1, header_of[$2], $2, $3, $4, $5
}
END { exit bad }
function declare(name, kind) {
    if (!(name in header_of)) { header_of[name] = header; kind_of[name] = kind }
}' include/*.h src/quant/blocks.h src/core/*.h -
