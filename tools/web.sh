#!/bin/bash
# SPDX-License-Identifier: MIT
# web.sh [STEP...]: builds the page that plans files in a browser (docs/user/browser.md). Without arguments it runs the step build:
#
#   build    build/web/index.html, one file with the planner as WebAssembly
#   test     the page in Chromium, compared with `berth map` of DIR (build)
#   speed    2,000 items under node: at most 3 times the native time
#
# Installs Debian's package emscripten (1 GB) if emcc is missing. Exit codes: 0 passed, 1 failed, 77 emscripten is unavailable.
set -eu
cd "$(dirname "$0")/.."
dir=build/web
native=${DIR:-build}

install_emscripten() {
    ! command -v emcc >/dev/null || return 0
    [ "$(id -u)" = 0 ] || { echo "web: install with: sudo apt-get install --no-install-recommends emscripten" >&2; exit 77; }
    echo "web: installing emscripten"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends emscripten; } >/dev/null ||
        { echo "web: emscripten cannot be installed" >&2; exit 77; }
}

# The core requires 64-bit pointers (-sMEMORY64=2: binaryen lowers them to the 32-bit memory that every browser has). Debian has
# emscripten's libraries for 32-bit pointers only, in a read-only cache. So the others are compiled in a cache of this build.
prepare_cache() {
    local from=/usr/share/emscripten/cache
    if [ ! -d $dir/cache/sysroot ]; then
        mkdir -p $dir/cache/sysroot
        cp -r $from/sysroot/include $dir/cache/sysroot
        cp $from/sysroot_install.stamp $dir/cache
    fi
    # emscripten 3.1.6 passes an option that node no longer has.
    cat >$dir/node <<'END'
#!/bin/sh
[ "$1" != --experimental-wasm-bigint ] || shift
exec node "$@"
END
    chmod +x $dir/node
    export EM_CACHE=$PWD/$dir/cache EM_FROZEN_CACHE="" EM_NODE_JS=$PWD/$dir/node
}

# emscripten 3.1.6 defines PRId64 as "ld", but int64_t as long long; -Wno-format hides the warnings, and both have 64 bits. With -O1 in
# CMAKE_C_FLAGS, CMake's checks link the same libraries as the page. The planner's folders are compiled with -O3
# (src/CMakeLists.txt).
step_build() {
    install_emscripten
    mkdir -p $dir
    prepare_cache
    emcmake cmake -G Ninja -S . -B $dir/cmake -D CMAKE_BUILD_TYPE=Release -D CMAKE_C_FLAGS="-O1 -sMEMORY64=2 -Wno-format" \
        -D CMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -D BUILD_SHARED_LIBS=OFF -D BERTH_TESTS=OFF -D BERTH_BENCH=OFF \
        -D BERTH_MPI=OFF -D BERTH_CUDA=OFF -D BERTH_VULKAN=OFF -D BERTH_SERVE=OFF >$dir/configure.log 2>&1 ||
        { cat $dir/configure.log; exit 1; }
    cmake --build $dir/cmake --target web ${JOBS:+-j "$JOBS"} >$dir/build.log 2>&1 || { tail -n 50 $dir/build.log; exit 1; }
    cp $dir/cmake/index.html $dir/index.html
    echo "web: $dir/index.html, $(du -k $dir/index.html | cut -f1) KiB"
}

step_test() {
    local chromium
    chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
        { echo "web: skipped: there is no Chromium ('BERTH_SETUP=ci make setup' installs it)"; return 0; }
    tests/cli/web_page.py $dir/index.html "$native/bin/berth" "$chromium" ${SHOTS:+"$SHOTS"}
}

step_speed() {
    node tests/cli/web_speed.mjs $dir/cmake/bin/berth-web.js "$native/bin/berth"
}

for step in ${*:-build}; do
    "step_$step"
done
