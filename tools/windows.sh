#!/bin/bash
# SPDX-License-Identifier: MIT
# windows.sh [STEP...]: builds Berth for Windows (x86-64) with mingw-w64 and tests it under wine. Without arguments it runs all steps:
#
#   build    libraries, program and tests, in build/windows
#   imports  the DLLs and the program depend only on each other and on DLLs of Windows
#   tests    unit tests, random tests and op-meta under wine; TESTS='-R NAME' selects some
#   run      `berth run` writes the text that the program of DIR (build) writes on this machine
#   cli      the scripts of tests/cli that need no signals, pipes or files of Linux
#   client   llama.cpp's DLLs of node-llama-cpp 3.21.1 write the same text as its libraries for this machine on Berth
#
# Installs missing Debian packages. cmocka is compiled from Debian's source package. Exit codes: 0 passed, 1 failed, 77 packages or wine
# are unavailable.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=build/windows
native=${DIR:-build}
work=$PWD/$dir/work
version=3.21.1
steps=${*:-build imports tests run cli client}
n_bad=0
export WINEPREFIX=${WINEPREFIX:-$PWD/$dir/wine} WINEDEBUG=-all

fail() {
    echo "windows: FAILED: $*"
    n_bad=$((n_bad + 1))
}

install_packages() {
    local missing="" p
    for p in gcc-mingw-w64-x86-64-posix libz-mingw-w64-dev wine64 wine dpkg-dev; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || { echo "windows: install with: sudo apt-get install$missing" >&2; exit 77; }
    echo "windows: installing$missing"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
        { echo "windows: these packages cannot be installed:$missing" >&2; exit 77; }
}

# Compiles cmocka as a static library. Its source comes from Debian, whose package lists on this machine may lack source packages.
build_cmocka() {
    local apt="$work/apt" source
    [ ! -f "$work/libcmocka.a" ] || return 0
    mkdir -p "$apt/parts" "$apt/lists"
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$apt/parts/source.sources" || return 1
    local options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts" -o "Dir::State::lists=$apt/lists" -qq)
    (cd "$work" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only cmocka) >/dev/null 2>&1 || return 1
    tar xf "$work"/cmocka_*.orig.tar.xz -C "$work" || return 1
    source=$(find "$work" -maxdepth 1 -type d -name 'cmocka-*')
    cmake -G Ninja -S "$source" -B "$work/cmocka" --toolchain "$PWD/cmake/mingw.cmake" -D CMAKE_BUILD_TYPE=Release -D WITH_EXAMPLES=OFF \
        >"$work/cmocka.log" 2>&1 && cmake --build "$work/cmocka" >>"$work/cmocka.log" 2>&1 || return 1
    cp "$source"/include/cmocka*.h "$work" &&
        x86_64-w64-mingw32-ar rcs "$work/libcmocka.a" "$work/cmocka/src/CMakeFiles/cmocka.dir/cmocka.c.obj"
}

step_build() {
    mkdir -p "$work"
    build_cmocka || { echo "windows: cmocka cannot be built; see $work/cmocka.log" >&2; exit 77; }
    local zlib=/usr/x86_64-w64-mingw32
    cmake -G Ninja -S . -B $dir --toolchain cmake/mingw.cmake -D CMAKE_BUILD_TYPE=Release -D BERTH_BENCH=OFF -D BERTH_MPI=OFF \
        -D BERTH_CUDA=OFF -D BERTH_TESTS=ON -D CMOCKA_INCLUDE="$work" -D CMOCKA_LIBRARY="$work/libcmocka.a" -D BERTH_CHECK_PART=8 \
        -D ZLIB_INCLUDE_DIR=$zlib/include -D ZLIB_LIBRARY=$zlib/lib/libz.a || exit 1
    cmake --build $dir ${JOBS:+-j "$JOBS"} -- -k 0 || fail "the build"
}

step_imports() {
    local file name
    for file in $dir/bin/*.dll $dir/bin/berth.exe; do
        for name in $(x86_64-w64-mingw32-objdump -p "$file" | sed -n 's/.*DLL Name: //p'); do
            case ${name,,} in
                kernel32.dll | shell32.dll | api-ms-win-*.dll) ;;
                ggml.dll | ggml-base.dll | ggml-cpu.dll) ;;
                *) fail "$file depends on $name" ;;
            esac
        done
        echo "windows: $(basename "$file"): $(x86_64-w64-mingw32-objdump -p "$file" | sed -n 's/.*DLL Name: //p' | grep -v '^api-ms-win' | tr '\n' ' ')"
    done
}

step_tests() {
    # Programs find DLLs next to themselves, or in WINEPATH.
    # shellcheck disable=SC2086
    WINEPATH="$PWD/$dir/bin" ctest --test-dir $dir -j2 --output-on-failure --label-exclude long --timeout 600 ${TESTS:-} || fail "tests"
}

step_run() {
    wine $dir/bin/berth.exe run --echo --seed 7 </dev/null >"$work/windows.txt" 2>/dev/null || fail "berth run: exit code $?"
    [ -s "$work/windows.txt" ] || fail "berth run writes nothing"
    if [ -x "$native/bin/berth" ]; then
        "$native/bin/berth" run --echo --seed 7 </dev/null >"$work/native.txt" 2>/dev/null
        cmp "$work/windows.txt" "$work/native.txt" || fail "berth run writes another text than $native/bin/berth"
    else
        echo "windows: $native/bin/berth does not exist: the text is not compared"
    fi
}

step_cli() {
    local script
    printf '#!/bin/sh\nexec wine "%s" "$@"\n' "$PWD/$dir/bin/berth.exe" >"$work/berth"
    chmod +x "$work/berth"
    for script in ${SCRIPTS:-ops plan_graph gguf}; do
        "tests/cli/$script.sh" "$work/berth" || fail "tests/cli/$script.sh"
    done
}

step_client() {
    local client=$work/client/package/bins/win-x64 prompt='Once upon a time' text
    if [ ! -d "$client" ]; then
        mkdir -p "$work/client"
        (cd "$work/client" && npm pack --silent "@node-llama-cpp/win-x64@$version" >/dev/null && tar xzf ./*.tgz) ||
            { fail "npm cannot fetch @node-llama-cpp/win-x64@$version"; return; }
    fi
    rm -rf "$work/berth-client" && mkdir "$work/berth-client"
    cp "$client"/llama.*.dll "$work/berth-client" && cp $dir/bin/ggml*.dll "$work/berth-client" || { fail "copying DLLs"; return; }
    text=$(wine $dir/tests/client-probe.exe "$work/berth-client" text models/tales-q8_0.gguf "$prompt" 48 2>"$work/client.log") ||
        fail "the client on Berth: $(tail -3 "$work/client.log")"
    echo "windows: client: $text"
    if [ -x "$native/tests/client-probe" ]; then # the same release on this machine, with Berth's libraries
        client=$work/native-client
        rm -rf "$client" && mkdir "$client"
        cp "$(tools/fetch-reference.sh $version)"/libllama.v*.so "$native"/lib/libggml-base.so "$native"/lib/libggml-cpu.so "$client" &&
            cp "$native/lib/libggml.so" "$client/libggml.v0.4.0.so"
        [ "$text" = "$(LD_LIBRARY_PATH=$client "$native/tests/client-probe" "$client" text models/tales-q8_0.gguf "$prompt" 48 2>/dev/null)" ] ||
            fail "the client writes another text on this machine"
    fi
}

install_packages
wine cmd /c exit >/dev/null 2>&1 || { echo "windows: wine does not start here: only the build and its imports are checked"; steps="build imports"; }
for step in $steps; do
    "step_$step"
done
echo "windows: $([ $n_bad = 0 ] && echo passed || echo "$n_bad failures")"
[ $n_bad = 0 ]
