#!/bin/sh
# cross.sh [PART]: builds Berth for the other architecture (x86_64 on arm64, arm64 on x86_64) with warnings as errors. Under
# qemu-user it tests the quantised formats and, for each tier, one in PART of the random products. Kernels and formats are compiled
# as they are shipped, all other files with -O1. Installs missing Debian packages. The attention of tier avx2 is not tested, because
# qemu 7.2 crashes at its masked loads. The exit code is 77 if the packages are unavailable.
set -eu
cd "$(dirname "$0")/.."

case $(uname -m) in
    aarch64 | arm64) cross=x86_64 deb=amd64 packages="gcc-x86-64-linux-gnu" tiers="sse42 avx2" ;;
    x86_64 | amd64) cross=aarch64 deb=arm64 packages="gcc-aarch64-linux-gnu" tiers="neon fp16 dotprod i8mm bf16" ;;
    *) echo "cross: $(uname -m) is not supported, only arm64 and x86_64 are" >&2; exit 77 ;;
esac
packages="$packages qemu-user libcmocka-dev:$deb zlib1g-dev:$deb"

missing=""
for p in $packages; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || { echo "cross: install with: sudo dpkg --add-architecture $deb; sudo apt-get update; sudo apt-get install$missing" >&2; exit 77; }
    echo "cross: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    dpkg --add-architecture $deb && apt-get update -qq
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null || { echo "cross: these packages cannot be installed:$missing" >&2; exit 77; }
fi

dir=build/cross
export BERTH_CROSS=$cross
cmake -G Ninja -S . -B $dir --toolchain cmake/cross.cmake -D CMAKE_BUILD_TYPE=Release -D BERTH_WERROR=ON -D BERTH_BENCH=OFF \
    -D BERTH_CHECK_PART="${1:-1}" -D CMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG -Wno-format-truncation -Wno-maybe-uninitialized"
cmake --build $dir --target ggml ggml-cpu ggml-base berth prop_matmul test_quant
# Two run at a time, because each uses mostly one thread.
export run="qemu-$cross -cpu max -L / $dir/tests"
# shellcheck disable=SC2016,SC2086
printf '%s\n' formats $tiers | xargs -P 2 -I TIER sh -c '
    if [ TIER = formats ]; then
        out=$($run/test_quant 2>&1)
    else
        out=$(BERTH_CPU_ISA=TIER $run/prop_matmul random_products 2>&1)
    fi
    status=$?
    printf "cross: TIER\n%s\n" "$out"
    exit $status'
