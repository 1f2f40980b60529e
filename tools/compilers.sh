#!/bin/bash
# compilers.sh [NAME...]: builds and tests Berth with every supported compiler, C library and CMake, and prints a table of the results.
# Without NAME it runs all rows. A row is one of the names of `rows` below. Every build runs in a network namespace without interfaces,
# so it shows that a build does not require the network. Compilers that this Debian lacks come from trixie, and CMake 3.18 comes from
# bullseye. debootstrap makes a chroot of these releases in the folder BERTH_CHROOTS, by default build/compilers/chroots. BERTH_FLAGS
# are the flags of optimisation: "-O1 -DNDEBUG" compiles faster than the shipped "-O2 -DNDEBUG". Requires root. The log of a row is
# build/compilers/NAME.log.
set -u
cd "$(dirname "$0")/.." || exit 1
source=$PWD
work=$source/build/compilers
chroots=${BERTH_CHROOTS:-$work/chroots}
flags=${BERTH_FLAGS:--O2 -DNDEBUG}
rows="gcc-11 gcc-12 gcc-13 gcc-14 clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 musl subdirectory fetchcontent cmake-3.18"
tests="test_cpu_kernels test_quant test_context test_gguf test_graph test_plan_solve test_plan_io"

[ "$(id -u)" = 0 ] || { echo "compilers: root is required, to install compilers and to build without the network" >&2; exit 77; }
mkdir -p "$work"
export DEBIAN_FRONTEND=noninteractive

# here PACKAGE: whether this Debian has the package.
here() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

# install_here PACKAGE...: installs the packages that are missing.
install_here() {
    local missing=()
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}"
}

# install_in RELEASE PACKAGE...: makes the chroot of a Debian release if it does not exist, and installs the packages there.
install_in() {
    local root=$chroots/$1
    install_here debootstrap || return 1
    if [ ! -e "$root/etc/debian_version" ]; then
        mkdir -p "$chroots"
        debootstrap --variant=minbase "$1" "$root" || return 1
    fi
    shift
    chroot "$root" apt-get install -y -qq --no-install-recommends "$@"
}

# offline ROOT COMMAND...: runs the command without the network. If ROOT is not /, it runs in that chroot, which has this folder at the
# same path. $ORIGIN in the RPATH of a program requires /proc.
offline() {
    local root=$1
    shift
    if [ "$root" = / ]; then
        unshare --net "$@"
        return
    fi
    mkdir -p "$root$source"
    # shellcheck disable=SC2016
    env -u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER unshare --net --mount sh -c '
        root=$1 source=$2
        shift 2
        mount --bind "$source" "$root$source" && mount -t proc proc "$root/proc" && exec chroot "$root" env -C "$source" "$@"' sh "$root" "$source" "$@"
}

# build NAME ROOT OPTION...: configures and builds the libraries and the program, with warnings as errors.
build() {
    local name=$1 root=$2
    shift 2
    offline "$root" cmake -G Ninja -S . -B "build/compilers/$name" -D CMAKE_BUILD_TYPE=Release -D "CMAKE_C_FLAGS_RELEASE=$flags" \
        -D BERTH_WERROR=ON -D BERTH_BENCH=OFF -D BERTH_CUDA=OFF -D BERTH_MPI=OFF "$@" &&
        offline "$root" cmake --build "build/compilers/$name" --target ggml ggml-cpu ggml-base berth
}

# tells NAME ROOT: the program generates the same text as the programs of the other rows.
tells() {
    offline "$2" "build/compilers/$1/bin/berth" run -n 40 --temp 0 </dev/null >"$work/$1.text" || return 1
    [ -s "$work/text" ] || cp "$work/$1.text" "$work/text"
    cmp "$work/text" "$work/$1.text"
}

# compiler NAME: a row of gcc or clang.
compiler() {
    local root=/
    if here "$1"; then
        install_here "$1" || return 77
    else
        root=$chroots/trixie
        install_in trixie "$1" g++ cmake ninja-build libcmocka-dev zlib1g-dev libmicrohttpd-dev pkg-config || return 77
    fi
    # shellcheck disable=SC2086
    build "$1" "$root" -D "CMAKE_C_COMPILER=$1" -D BERTH_TESTS=ON &&
        offline "$root" cmake --build "build/compilers/$1" --target $tests &&
        offline "$root" ctest --test-dir "build/compilers/$1" --output-on-failure --no-tests=error -R "^(${tests// /|})\$" &&
        tells "$1" "$root"
}

# The program linked statically with musl. It has no MPI, no HTTP server and no packed captures, whose libraries are not built for musl.
musl() {
    install_here musl-tools || return 77
    build musl / -D CMAKE_C_COMPILER=musl-gcc -D BUILD_SHARED_LIBS=OFF -D CMAKE_EXE_LINKER_FLAGS=-static -D BERTH_TESTS=OFF \
        -D BERTH_SERVE=OFF -D CMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON || return 1
    if readelf -d build/compilers/musl/bin/berth | grep NEEDED; then
        return 1
    fi
    tells musl /
}

# project NAME TEXT: builds a project that contains Berth by the commands TEXT, and runs its program. The folder has a space in its name.
project() {
    local folder="$work/$1 project"
    mkdir -p "$folder"
    cp examples/hello.c "$folder/" || return 1
    printf '%s\n' "cmake_minimum_required(VERSION 3.25)" "project(outside LANGUAGES C)" "$2" \
        "add_executable(hello hello.c)" "target_link_libraries(hello PRIVATE ggml::ggml)" >"$folder/CMakeLists.txt"
    offline / cmake -G Ninja -S "$folder" -B "$folder/build" -D BERTH_TESTS=OFF -D BERTH_BENCH=OFF -D BERTH_CUDA=OFF -D BERTH_MPI=OFF \
        -D "CMAKE_C_FLAGS_RELEASE=$flags" &&
        offline / cmake --build "$folder/build" --target hello && "$folder/build/hello"
}

subdirectory() { project subdirectory "add_subdirectory(\"$source\" berth)"; }
fetchcontent() {
    project fetchcontent "include(FetchContent)
FetchContent_Declare(berth SOURCE_DIR \"$source\")
FetchContent_MakeAvailable(berth)"
}

# CMake 3.18, of bullseye, gives one message.
old_cmake() {
    install_in bullseye cmake ninja-build gcc libc6-dev || return 77
    ! offline "$chroots/bullseye" cmake -G Ninja -S . -B build/compilers/old >"$work/old.log" 2>&1 || return 1
    cat "$work/old.log"
    grep -q "CMake 3.25 or higher is required" "$work/old.log" && [ "$(grep -c 'CMake Error' "$work/old.log")" = 1 ]
}

run_row() {
    case $1 in
        gcc-* | clang-*) compiler "$1" ;;
        cmake-3.18) old_cmake ;;
        *) "$1" ;;
    esac
}

# version NAME: the exact version of what the row tests.
version() {
    case $1 in
        gcc-* | clang-*) { "$1" --version || chroot "$chroots/trixie" "$1" --version; } 2>/dev/null | sed -n '1s/.* \([0-9]*\.[0-9.]*\).*/\1/p' ;;
        cmake-3.18) chroot "$chroots/bullseye" cmake --version | sed -n '1s/^[^0-9]*//p' ;;
        musl) dpkg-query -W -f '${Version}' musl-tools ;;
        *) cmake --version | sed -n '1s/^[^0-9]*//p' ;;
    esac
}

n_bad=0
rm -f "$work/text"
echo "| row | version | result | seconds |"
echo "|---|---|---|---|"
# shellcheck disable=SC2086
[ $# != 0 ] || set -- $rows
for name; do
    case " $rows " in
        *" $name "*) ;;
        *) echo "compilers: '$name' is not one of: $rows" >&2; exit 2 ;;
    esac
    begin=$SECONDS
    run_row "$name" >"$work/$name.log" 2>&1
    code=$?
    case $code in
        0) result=passed ;;
        77) result="not installed" n_bad=$((n_bad + 1)) ;;
        *) result="FAILED: $work/$name.log" n_bad=$((n_bad + 1)) ;;
    esac
    echo "| $name | $(version "$name") | $result | $((SECONDS - begin)) |"
done
[ $n_bad = 0 ]
