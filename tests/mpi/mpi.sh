#!/bin/sh
# mpi.sh BUILD: ranks on this machine, over shared memory and over TCP: communication between programs, models split by layers and
# by tensors, other programs.
set -eu
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
ranks() { timeout 60 mpirun --allow-run-as-root --oversubscribe "$@"; }
say() { echo "mpi: $*"; }
world=$build/tests/mpi-world

$world || { say "without mpirun"; exit 1; }
for net in vader,self tcp,self; do
    for n in 1 2 4; do
        ranks --mca btl $net -n $n "$world" || { say "$n ranks over $net"; exit 1; }
    done
done
say "sums, broadcasts and barriers of 1, 2 and 4 ranks"
for net in vader,self tcp,self; do
    ranks --enable-recovery -q --mca btl $net -n 2 "$build/tests/mpi-short" "$build/lib/libberth-mpi.so" 2> /dev/null | grep -q "all came" ||
        { say "messages without memory over $net"; exit 1; }
done
say "messages without memory and MPI failures are reported with the reason"
BERTH_MPI_TIMEOUT=3 ranks --enable-recovery -q -n 3 "$world" die || [ $? = 7 ] || { say "a rank that dies"; exit 1; }
say "a rank that dies is reported"
if [ "$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)" -ge 3000 ]; then
    BERTH_MPI_STALL=20 ranks -n 2 "$world" large || { say "a large sum"; exit 1; }
    say "a sum of more bytes than a rank receives ahead of a request"
fi
# The stopped rank is killed at the end.
BERTH_MPI_TIMEOUT=3 ranks --enable-recovery -q --mca btl tcp,self -n 3 "$world" freeze || [ $? = 137 ] || { say "a rank that freezes"; exit 1; }
say "a rank that freezes while it sends is lost, and no other"

# The command of docs/user/cluster.md, on this machine alone: its exit code is that of the program.
documented() { # MODEL
    line=$(sed -n 's/^mpirun \(.*berth worker\) .*/\1/p' "$root/docs/user/cluster.md" | head -n 1)
    line=$(echo "$line" | sed "s|--host here,there||; s|build/bin/berth|$build/bin/berth|g; s|MODEL.gguf|$1 -n 1|")
    # shellcheck disable=SC2086
    ranks -q $line > /dev/null 2>&1 < /dev/null
}
code=0
documented "$root/tests/data/tales-3m-q8_0.gguf" || code=$?
[ $code = 0 ] || { say "the command of docs/user/cluster.md: exit code $code"; exit 1; }
documented /none.gguf || code=$?
[ $code = 3 ] || { say "the command of docs/user/cluster.md with a missing model: exit code $code"; exit 1; }
say "the documented command has the exit code of its program"

# A model split by layers: the generated text is that of one machine, word for word.
berth=$build/bin/berth
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tale() { ranks "$@" < /dev/null > "$dir/tale" 2> "$dir/said" || { cat "$dir/said"; return 1; }; }
"$berth" run --seed 3 -n 60 < /dev/null > "$dir/alone" 2> /dev/null
for net in vader,self tcp,self; do
    for n in 1 3; do
        tale --mca btl $net -n 1 "$berth" run --seed 3 -n 60 : -n $n "$berth" worker -t 1 || { say "$n workers over $net"; exit 1; }
        cmp "$dir/alone" "$dir/tale" || { say "$n workers over $net generate another text"; exit 1; }
        grep -q "MPI$n:CPU: weights" "$dir/said" || { say "worker $n has no weights"; cat "$dir/said"; exit 1; }
    done
done
say "a model split by layers over 2 and 4 ranks generates the text of one process"

# A model split by tensors: each rank, this one included, has a part of every layer. The sums over parts round as those over the
# same number of parts in one process, so both generate the same text. It may differ from the text of a model that is not split.
parts() { "$berth" run --seed 3 -n 60 --split tensor --device "$1" -t 1 < /dev/null > "$2" 2> /dev/null; }
parts CPU,CPU "$dir/parts.1" && parts CPU,CPU,CPU,CPU "$dir/parts.3" || { say "parts of one process"; exit 1; }
for net in vader,self tcp,self; do
    for n in 1 3; do
        tale --mca btl $net -n 1 "$berth" run --seed 3 -n 60 --split tensor -t 1 : -n $n "$berth" worker -t 1 ||
            { say "parts on $n workers over $net"; exit 1; }
        cmp "$dir/parts.$n" "$dir/tale" || { say "parts on $n workers over $net generate another text"; exit 1; }
        grep -q "Meta(CPU,.*MPI$n:CPU): weights" "$dir/said" || { say "worker $n has no part"; cat "$dir/said"; exit 1; }
    done
done
# The split by tensors that BERTH_SPLIT requests, without an option of the program, generates the same text.
tale -n 1 -x BERTH_SPLIT=tensor "$berth" run --seed 3 -n 60 -t 1 : -n 1 "$berth" worker -t 1 || { say "BERTH_SPLIT"; exit 1; }
cmp "$dir/parts.1" "$dir/tale" || { say "BERTH_SPLIT generates another text"; exit 1; }
grep -q "Meta(CPU,MPI1:CPU): weights" "$dir/said" || { say "BERTH_SPLIT has no effect"; cat "$dir/said"; exit 1; }
say "a model split by tensors over 2 and 4 ranks generates the text of as many parts in one process"

# hwloc's plugins for displays must not be loaded, because they would take memory in every rank.
ranks -q -n 1 -x LD_DEBUG=files "$berth" run --split tensor -n 2 -t 1 : -n 3 -x LD_DEBUG=files "$berth" worker -t 1 > "$dir/loaded" 2>&1 ||
    { say "a run with LD_DEBUG=files"; exit 1; }
grep -q "libberth-mpi.so" "$dir/loaded" || { say "the list of loaded libraries is empty"; exit 1; }
! grep -q "file=.*hwloc_gl\.so\|file=libX11" "$dir/loaded" || { say "hwloc's plugins are loaded"; exit 1; }

# `berth bench` measures the ranks as a cluster, and `berth fit` simulates that cluster. The predicted bytes must equal those of a
# run.
ranks -q -n 1 "$berth" bench --cluster "$dir/here.json" -t 1 "$root/tests/data/tales-3m-q8_0.gguf" : -n 2 "$berth" worker -t 1 ||
    { say "measuring 3 ranks"; exit 1; }
"$berth" fit --json --cluster "$dir/here.json" -c 256 > "$dir/predicted" || { say "berth fit for 3 ranks"; cat "$dir/predicted"; exit 1; }
tale -q -n 1 "$berth" run --json -c 256 --seed 3 -n 4 : -n 2 "$berth" worker -t 1 || { say "a run to compare with"; exit 1; }
sizes() { grep -o "\"device\": \"$2\"[^}]*" "$1" | head -1 | grep -o '"weights": [0-9]*, "cache": [0-9]*, "compute": [0-9]*'; }
for device in CPU MPI1:CPU MPI2:CPU; do
    [ -n "$(sizes "$dir/tale" $device)" ] && [ "$(sizes "$dir/tale" $device)" = "$(sizes "$dir/predicted" $device)" ] ||
        { say "$device has $(sizes "$dir/tale" $device), predicted were $(sizes "$dir/predicted" $device)"; exit 1; }
done
tale -n 1 "$berth" run --seed 3 -n 60 --split auto -t 1 : -n 1 "$berth" worker -t 1 || { say "--split auto"; exit 1; }
took=$(sed -n 's/^--split \([a-z]*\): .* by layers, .* by tensors.*/\1/p' "$dir/said")
case $took in
    layer) cmp "$dir/alone" "$dir/tale" ;;
    tensor) cmp "$dir/parts.1" "$dir/tale" ;;
    *) say "--split auto does not print its choice"; cat "$dir/said"; exit 1 ;;
esac || { say "--split auto took $took and generates another text"; exit 1; }
say "the bytes on each rank are as predicted, and the faster split is chosen"

# Weights in a worker's cache folder are not sent again. A changed file in the cache folder is not used.
mkdir "$dir/cache"
for round in 1 2; do
    tale -n 1 "$berth" run --seed 3 -n 60 : -n 1 "$berth" worker -t 1 --cache "$dir/cache" || { say "with a cache"; exit 1; }
    cmp "$dir/alone" "$dir/tale" || { say "a cache generates another text, round $round"; exit 1; }
    ls "$dir/cache" > "$dir/kept.$round"
done
[ -s "$dir/kept.1" ] && cmp "$dir/kept.1" "$dir/kept.2" || { say "the cache is empty, or has the same contents twice"; exit 1; }
for file in "$dir"/cache/*; do printf 'not what it was' > "$file"; done
tale -n 1 "$berth" run --seed 3 -n 60 : -n 1 "$berth" worker -t 1 --cache "$dir/cache" || { say "with a broken cache"; exit 1; }
cmp "$dir/alone" "$dir/tale" || { say "a broken cache generates another text"; exit 1; }
# With a split by tensors, weights are also sent only once, including tensors of which a rank has a part of each row. The worker
# caches about half of the file.
mkdir "$dir/shares"
for round in 1 2; do
    tale -n 1 "$berth" run --seed 3 -n 60 --split tensor -t 1 : -n 1 "$berth" worker -t 1 --cache "$dir/shares" || { say "parts with a cache"; exit 1; }
    cmp "$dir/parts.1" "$dir/tale" || { say "cached parts generate another text, round $round"; exit 1; }
done
kept=$(cat "$dir"/shares/* | wc -c) all=$(wc -c < "$root/tests/data/tales-3m-q8_0.gguf")
[ $((100 * kept / all)) -ge 40 ] || { say "a worker with half of each weight has cached $kept of $all bytes"; exit 1; }
say "weights are cached and checked"

"$berth" worker -t 1 2> "$dir/said" && { say "a worker without mpirun"; exit 1; }
grep -q mpirun "$dir/said" || { say "a worker without mpirun does not name mpirun"; cat "$dir/said"; exit 1; }

# An exit handler frees a buffer at a worker after the ranks have left.
ranks -q -n 1 "$world" late : -n 1 "$berth" worker -t 1 > "$dir/said" 2>&1 || { say "freeing a buffer after the ranks have left"; cat "$dir/said"; exit 1; }
say "a buffer at a worker can be freed after the ranks have left"

# A repeated step split by layers sends one small message per rank in addition to the activations. Memory and open files do not
# grow.
for n in 1 3; do
    ranks -n 1 "$build/tests/mpi-steps" 2 300 : -n $n "$berth" worker -t 1 || { say "steps over $n workers"; exit 1; }
done

# A program that ends without querying devices leaves no worker running, with or without recovery.
for how in --enable-recovery ""; do
    before=$(pgrep -c -f "$berth worker" || true)
    # shellcheck disable=SC2086
    ranks -q $how -n 1 sleep 1 : -n 2 "$berth" worker -t 1 > "$dir/said" 2>&1 || [ $? = 1 ] || { say "a program without devices"; cat "$dir/said"; exit 1; }
    for look in $(seq 100); do # the last worker may need a moment
        [ "$(pgrep -c -f "$berth worker" || true)" != "$before" ] || break
        [ "$look" -lt 100 ] || { say "a worker is still running"; exit 1; }
        sleep 0.1
    done
done
say "no worker outlives its program"

# A worker that crashes must end, also while MPI starts: MPI must not have kept its handlers for signals 6, 8 and 11 (7 is MPI's
# own).
# shellcheck disable=SC2016
ranks -q --enable-recovery -n 1 sh -c 'while [ ! -e "$1" ]; do sleep 0.1; done' sh "$dir/seen" : -n 1 "$berth" worker -t 1 > "$dir/said" 2>&1 &
launcher=$!
for look in $(seq 400); do # until MPI has started its own threads
    pid=$(pgrep -f "^$berth worker -t 1" | tail -n 1 || true)
    [ -z "$pid" ] || [ "$(find "/proc/$pid/task" -maxdepth 1 2> /dev/null | wc -l)" -lt 6 ] || break
    [ "$look" -lt 400 ] || { say "a worker does not start"; cat "$dir/said"; exit 1; }
    sleep 0.05
done
caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
touch "$dir/seen"
wait $launcher || true
[ $((0x$caught & 0x4a0)) = 0 ] || { say "MPI has kept signal handlers of a starting worker: $caught"; exit 1; }
say "handlers of crash signals are unchanged"

# A program whose workers cannot be joined reports it and continues, even if an MPI call never returns.
BERTH_MPI_TIMEOUT=1 ranks -q --enable-recovery -n 1 "$berth" devices : -n 1 "$berth" worker -d nowhere > "$dir/tale" 2> "$dir/said" ||
    { say "a program without its worker"; cat "$dir/said"; exit 1; }
grep -q "continues without the others\|is left out" "$dir/said" || { say "a missing worker is not reported"; cat "$dir/said"; exit 1; }
mkdir "$dir/stuck"
cp "$build"/lib/libggml*.so* "$dir/stuck/"
cp "$build/tests/mpi-stuck-link.so" "$dir/stuck/libberth-mpi.so"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout 30 "$berth" devices \
    > "$dir/tale" 2> "$dir/said" || { say "a program hangs where MPI does"; cat "$dir/said"; exit 1; }
grep -q "without the others: the first messages between the ranks" "$dir/said" || { say "an MPI call that hangs is not reported"; cat "$dir/said"; exit 1; }
# The log callback may query devices when it is called.
asks() { env "$1" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout 30 "$world" ask "$2"; }
asks NOTHING=1 "continues without the others" || { say "a log callback that queries devices"; exit 1; }
asks BERTH_TEST_SILENT=1 "is left out: it has sent nothing" || { say "a log callback that queries devices, with a silent rank"; exit 1; }
# A thread that MPI blocks later: other threads of the process get an error. If only the blocked thread is left, the process ends if
# BERTH_MPI_HELD requests it.
holds() { env BERTH_TEST_HELD="$1" BERTH_MPI_HELD="$2" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout "$3" "$world" > "$dir/said" 2>&1; }
holds others "" 30 && { say "a sum without the other rank"; exit 1; }
grep -q "rank 1 on elsewhere is lost: an MPI call has not returned" "$dir/said" || { say "a thread that MPI blocks is not reported"; cat "$dir/said"; exit 1; }
holds first end 30 || rc=$?
[ "$rc" = 1 ] && ! grep -q world.c "$dir/said" || { say "a program that MPI blocks ended with $rc"; cat "$dir/said"; exit 1; }
holds first "" 4 || rc=$?
[ "$rc" = 124 ] || { say "a program that MPI blocks ended with $rc without BERTH_MPI_HELD=end"; cat "$dir/said"; exit 1; }
# A worker that ended before the program's first check: detected well before the 30 s that a late worker may take.
began=$(date +%s)
ranks -q --enable-recovery -n 1 sh -c 'sleep 1; exec "$@"' sh "$berth" devices : -n 1 true > "$dir/tale" 2> "$dir/said" ||
    { say "a program whose worker has ended"; cat "$dir/said"; exit 1; }
grep -q "ended before it joined" "$dir/said" || { say "a worker that has ended is not reported"; cat "$dir/said"; exit 1; }
[ $(($(date +%s) - began)) -lt 20 ] || { say "a worker that has ended delays the program by $(($(date +%s) - began)) s"; exit 1; }
say "a program continues without ranks that cannot be joined"

# llama.cpp's own library, if it was fetched: the logits over workers equal those of one process, bit by bit.
for reference in "$root"/.cache/reference/*-3.22.1; do
    [ -d "$reference" ] || { say "SKIPPED: llama.cpp's binaries are missing (tools/fetch-reference.sh)"; break; }
    mkdir "$dir/llama"
    cp "$reference"/bins/*/libllama*.so "$dir/llama/"
    cp "$build"/lib/libggml-base.so "$build"/lib/libggml-cpu.so "$build"/lib/libggml-mpi.so "$build"/lib/libberth-mpi.so "$dir/llama/"
    cp "$build/lib/libggml.so" "$dir/llama/libggml.v0.5.0.so"
    probe="$build/tests/client-probe $dir/llama"
    model=$root/tests/data/tales-3m-q8_0.gguf
    $probe logits "$model" "$dir/logits" 64 2> /dev/null
    for n in 1 2; do
        # shellcheck disable=SC2086
        tale -n 1 $probe logits "$model" "$dir/logits.$n" 64 : -n $n "$berth" worker -t 1 || { say "libllama over $n workers"; exit 1; }
        cmp "$dir/logits" "$dir/logits.$n" || { say "libllama over $n workers: other logits"; exit 1; }
    done
    # shellcheck disable=SC2086
    tale -n 1 $probe memory "$model" : -n 2 "$berth" worker -t 1
    [ "$($probe memory "$model" 2> /dev/null)" != "$(cat "$dir/tale")" ] || { say "libllama placed nothing on the workers"; exit 1; }
    say "libllama over 2 and 3 ranks has the logits of one process"
done
