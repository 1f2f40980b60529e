#!/bin/sh
# max_name.sh SOURCE_DIR BUILD_DIR: a program with another GGML_MAX_NAME than the library does not link, because its tensors have
# another size. A value that no library can have does not compile. The reference's layouts hold with other values, and a wrong
# layout does not compile. A backend with another value has another API version.
set -eu
source=$1
build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cc=${CC:-cc}

cat > "$scratch/program.c" <<'END'
#include "ggml-backend-impl.h"
#include <stdio.h>
int main(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    printf("%d %d %d\n", (int) sizeof t->name, (int) (ggml_tensor_overhead() >= sizeof *t), GGML_BACKEND_API_VERSION);
    ggml_free(ctx);
    return 0;
}
END
cp "$scratch/program.c" "$scratch/program.cc"
sed -i 's/(struct ggml_init_params){.mem_size = 1 << 16}/ggml_init_params{1 << 16, nullptr, false}/' "$scratch/program.cc"

fail() {
    echo "max_name: $1"
    [ ! -e "$scratch/log" ] || cat "$scratch/log"
    exit 1
}

link() { # VALUE SOURCE
    "$cc" -I"$source/include" "-DGGML_MAX_NAME=$1" "$2" -o "$scratch/program" -L"$build/lib" -lggml -lggml-base \
        "-Wl,-rpath,$build/lib" > "$scratch/log" 2>&1
}

own=$(sed -n 's/^GGML_MAX_NAME:STRING=//p' "$build/CMakeCache.txt")
other=$((own + 64))
for program in "$scratch/program.c" "$scratch/program.cc"; do
    link "$own" "$program" || fail "a program with the library's $own does not link"
    [ "$("$scratch/program" | cut -d' ' -f1,2)" = "$own 1" ] || fail "a tensor's name has another size than $own"
    ! link "$other" "$program" || fail "a program with $other links with a library of $own"
    grep -q "ggml_init_max_name_$other" "$scratch/log" || fail "the linker's error does not name the value $other"
done

! link 32 "$scratch/program.c" || fail "a value of 32 compiles"
grep -q "GGML_MAX_NAME must be 64 or more" "$scratch/log" || fail "the compiler's error does not state the allowed values of GGML_MAX_NAME"

compiles() { # VALUE TABLE: the check of layouts, made from the table
    cmake -D "TABLE=$2" -D "OUT=$scratch/abi.c" -P "$source/cmake/abi.cmake" &&
        "$cc" -std=c11 -D_GNU_SOURCE "-DGGML_MAX_NAME=$1" -I"$source/include" -I"$source/src" -fsyntax-only "$scratch/abi.c" \
            > "$scratch/log" 2>&1
}
for value in "$own" "$other"; do
    compiles "$value" "$source/cmake/abi.tsv" || fail "the layouts of cmake/abi.tsv do not hold with $value"
done

# Every kind of row is checked: 1000 is added to, or a text replaces, one column of the first row of the kind.
must_fail() { # KIND COLUMN [TEXT]
    awk -F'\t' -v OFS='\t' -v kind="$1" -v column="$2" -v text="${3:-}" \
        '$1 == kind && $4 != "(whole)" && !n++ { $column = text != "" ? text : $column + 1000 } { print }' \
        "$source/cmake/abi.tsv" > "$scratch/abi.tsv"
    ! compiles "$own" "$scratch/abi.tsv" || fail "a wrong value in column $2 of a $1 row compiles"
}
for kind in struct type enum constant least; do
    must_fail $kind 5
done
must_fail struct 6
must_fail type 6
must_fail function 3 ggml_not_there
must_fail function 4 'struct gguf_context *'

printf '#include "ggml-backend-impl.h"\n#if GGML_BACKEND_API_VERSION == 2\n#error same\n#endif\n' > "$scratch/version.c"
"$cc" -DGGML_MAX_NAME=128 -I"$source/include" -fsyntax-only "$scratch/version.c" > "$scratch/log" 2>&1 ||
    fail "a backend with 128 claims the API version of one with 64"
echo "max_name: passed"
