#!/bin/sh
# uninstall.sh BUILD PREFIX: removes the files that the last `make install` of the folder BUILD installed below PREFIX, then Berth's
# own folders if they are empty. DESTDIR is respected.
set -eu
manifest=$1/install_manifest.txt prefix=${2%/}
if [ ! -r "$manifest" ]; then
    echo "berth: nothing to uninstall: $manifest, which 'make install' writes, does not exist" >&2
    exit 1
fi
other=$(awk -v prefix="$prefix/" 'index($0, prefix) != 1 { print; exit }' "$manifest")
if [ -n "$other" ]; then
    echo "berth: the last installation is not below $prefix: it has $other; nothing was removed. Give its PREFIX" >&2
    exit 1
fi
# awk adds the missing newline at the end of the manifest.
awk 1 "$manifest" | while IFS= read -r file; do
    rm -f "${DESTDIR:-}$file"
done
awk -v n="${#prefix}" '{ path = substr($0, n + 1); while (sub(/\/[^\/]*$/, "", path)) { print path } }' "$manifest" |
    grep -E '/(berth|ggml|2023)(/|$)' | sort -ur | while IFS= read -r folder; do
    rmdir "${DESTDIR:-}$prefix$folder" 2>/dev/null || true
done
echo "berth: removed $(awk 'END { print NR }' "$manifest") files below ${DESTDIR:-}$prefix"
