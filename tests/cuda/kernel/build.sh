#!/bin/sh
# Builds the kernel tests for sm_90a into a folder: build.sh FOLDER
set -e
out=$1
root=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir -p "$out"
cd "$out"
nvcc="nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -I$root/include -I$root/src -I$root/src/cuda/kernel"
jobs=""
for f in "$root"/src/quant/*.c; do
    gcc -std=gnu11 -O2 -c -I"$root/include" -I"$root/src" "$f" -o "quant_$(basename "$f" .c).o" &
done
echo 'void berth_fail(void); void berth_fail(void) {}' > fail.c
gcc -c fail.c -o quant_fail.o
for f in "$root"/src/cuda/kernel/m[mv]*.cu "$root"/src/cuda/kernel/act.cu "$root"/src/cuda/kernel/attn*.cu "$root"/tests/cuda/kernel/*.cu; do
    [ -f "$f" ] || continue
    case $f in
        */tests/*) o=test_$(basename "$f" .cu).o ;;
        *) o=kernel_$(basename "$f" .cu).o ;;
    esac
    $nvcc -c "$f" -o "$o" &
done
wait
for t in test_*.o; do
    nvcc -o "${t%.o}" "$t" kernel_*.o quant_*.o -lm
done
