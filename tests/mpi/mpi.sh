#!/bin/sh
# mpi.sh BUILD: ranks on this machine, over shared memory and over TCP: programs among themselves, models by layers and by tensors,
# other programs.
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
say "messages that there is no memory for, or that MPI fails at, are told of with the reason"
BERTH_MPI_TIMEOUT=3 ranks --enable-recovery -q -n 3 "$world" die || [ $? = 7 ] || { say "a rank that dies"; exit 1; }
say "a rank that dies is told of"
if [ "$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)" -ge 3000 ]; then
    BERTH_MPI_STALL=20 ranks -n 2 "$world" large || { say "a large sum"; exit 1; }
    say "a sum of more bytes than a rank takes in ahead"
fi
# The one that is stopped is killed at last.
BERTH_MPI_TIMEOUT=3 ranks --enable-recovery -q --mca btl tcp,self -n 3 "$world" freeze || [ $? = 137 ] || { say "a rank that freezes"; exit 1; }
say "a rank that freezes amid its messages is lost alone"

# The command of docs/user/cluster.md, on this machine alone: its exit code is the program's.
documented() { # MODEL
    line=$(sed -n 's/^mpirun \(.*berth worker\) .*/\1/p' "$root/docs/user/cluster.md" | head -n 1)
    line=$(echo "$line" | sed "s|--host here,there||; s|build/bin/berth|$build/bin/berth|g; s|MODEL.gguf|$1 -n 1|")
    # shellcheck disable=SC2086
    ranks -q $line > /dev/null 2>&1 < /dev/null
}
code=0
documented "$root/models/tales-q8_0.gguf" || code=$?
[ $code = 0 ] || { say "the command of docs/user/cluster.md: exit code $code"; exit 1; }
documented /none.gguf || code=$?
[ $code = 3 ] || { say "the command of docs/user/cluster.md with a model that is not there: exit code $code"; exit 1; }
say "the documented command has the exit code of its program"

# A model by layers: the tale is the one that this machine tells alone, word for word.
berth=$build/bin/berth
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tale() { ranks "$@" < /dev/null > "$dir/tale" 2> "$dir/said" || { cat "$dir/said"; return 1; }; }
"$berth" run --seed 3 -n 60 < /dev/null > "$dir/alone" 2> /dev/null
for net in vader,self tcp,self; do
    for n in 1 3; do
        tale --mca btl $net -n 1 "$berth" run --seed 3 -n 60 : -n $n "$berth" worker -t 1 || { say "$n workers over $net"; exit 1; }
        cmp "$dir/alone" "$dir/tale" || { say "$n workers over $net tell another tale"; exit 1; }
        grep -q "MPI$n:CPU: weights" "$dir/said" || { say "worker $n has no weights"; cat "$dir/said"; exit 1; }
    done
done
say "a model over 2 and 4 ranks tells the tale it tells alone"

# By tensors: a share of every layer to each rank, this one's CPU among them. Sums over shares round as they do over as many parts of
# one process, which tell the same tale then, word for word; it need not be that of a model that is not shared out.
parts() { "$berth" run --seed 3 -n 60 --split tensor --device "$1" -t 1 < /dev/null > "$2" 2> /dev/null; }
parts CPU,CPU "$dir/parts.1" && parts CPU,CPU,CPU,CPU "$dir/parts.3" || { say "parts of one process"; exit 1; }
for net in vader,self tcp,self; do
    for n in 1 3; do
        tale --mca btl $net -n 1 "$berth" run --seed 3 -n 60 --split tensor -t 1 : -n $n "$berth" worker -t 1 ||
            { say "shares of $n workers over $net"; exit 1; }
        cmp "$dir/parts.$n" "$dir/tale" || { say "shares of $n workers over $net tell another tale"; exit 1; }
        grep -q "Meta(CPU,.*MPI$n:CPU): weights" "$dir/said" || { say "worker $n has no share"; cat "$dir/said"; exit 1; }
    done
done
# The same where the program is told nothing of it.
tale -n 1 -x BERTH_SPLIT=tensor "$berth" run --seed 3 -n 60 -t 1 : -n 1 "$berth" worker -t 1 || { say "BERTH_SPLIT"; exit 1; }
cmp "$dir/parts.1" "$dir/tale" || { say "BERTH_SPLIT tells another tale"; exit 1; }
grep -q "Meta(CPU,MPI1:CPU): weights" "$dir/said" || { say "BERTH_SPLIT splits nothing"; cat "$dir/said"; exit 1; }
say "a model with shares on 2 and 4 ranks tells the tale that as many parts of one process tell"

# What hwloc could tell MPI of screens is not asked for: its libraries are memory of every rank.
ranks -q -n 1 -x LD_DEBUG=files "$berth" run --split tensor -n 2 -t 1 : -n 3 -x LD_DEBUG=files "$berth" worker -t 1 > "$dir/loaded" 2>&1 ||
    { say "a run that says what it loads"; exit 1; }
grep -q "libberth-mpi.so" "$dir/loaded" || { say "nothing is said of what is loaded"; exit 1; }
! grep -q "file=.*hwloc_gl\.so\|file=libX11" "$dir/loaded" || { say "hwloc's plugins are loaded"; exit 1; }

# Ranks are measured and asked about; the bytes that are foretold are those that a run has.
ranks -q -n 1 "$berth" bench --cluster "$dir/here.json" -t 1 "$root/models/tales-q8_0.gguf" : -n 2 "$berth" worker -t 1 ||
    { say "measuring 3 ranks"; exit 1; }
"$berth" fit --json --cluster "$dir/here.json" -c 256 > "$dir/foretold" || { say "asking about 3 ranks"; cat "$dir/foretold"; exit 1; }
tale -q -n 1 "$berth" run --json -c 256 --seed 3 -n 4 : -n 2 "$berth" worker -t 1 || { say "a run to compare with"; exit 1; }
sizes() { grep -o "\"device\": \"$2\"[^}]*" "$1" | head -1 | grep -o '"weights": [0-9]*, "cache": [0-9]*, "compute": [0-9]*'; }
for device in CPU MPI1:CPU MPI2:CPU; do
    [ -n "$(sizes "$dir/tale" $device)" ] && [ "$(sizes "$dir/tale" $device)" = "$(sizes "$dir/foretold" $device)" ] ||
        { say "$device has $(sizes "$dir/tale" $device), foretold were $(sizes "$dir/foretold" $device)"; exit 1; }
done
tale -n 1 "$berth" run --seed 3 -n 60 --split auto -t 1 : -n 1 "$berth" worker -t 1 || { say "--split auto"; exit 1; }
took=$(sed -n 's/^--split \([a-z]*\): .* by layers, .* by tensors.*/\1/p' "$dir/said")
case $took in
    layer) cmp "$dir/alone" "$dir/tale" ;;
    tensor) cmp "$dir/parts.1" "$dir/tale" ;;
    *) say "--split auto does not say what it took"; cat "$dir/said"; exit 1 ;;
esac || { say "--split auto took $took and tells another tale"; exit 1; }
say "bytes on each rank are as foretold, and the faster split is taken"

# Weights travel once: what a worker has in its cache folder is not sent again.
mkdir "$dir/cache"
for round in 1 2; do
    tale -n 1 "$berth" run --seed 3 -n 60 : -n 1 "$berth" worker -t 1 --cache "$dir/cache" || { say "with a cache"; exit 1; }
    cmp "$dir/alone" "$dir/tale" || { say "a cache tells another tale, round $round"; exit 1; }
    ls "$dir/cache" > "$dir/kept.$round"
done
[ -s "$dir/kept.1" ] && cmp "$dir/kept.1" "$dir/kept.2" || { say "nothing is kept, or the same twice"; exit 1; }
for file in "$dir"/cache/*; do printf 'not what it was' > "$file"; done
tale -n 1 "$berth" run --seed 3 -n 60 : -n 1 "$berth" worker -t 1 --cache "$dir/cache" || { say "with a broken cache"; exit 1; }
cmp "$dir/alone" "$dir/tale" || { say "a broken cache tells another tale"; exit 1; }
# By tensors too, also those of which a rank has a part of each row: about half of the file.
mkdir "$dir/shares"
for round in 1 2; do
    tale -n 1 "$berth" run --seed 3 -n 60 --split tensor -t 1 : -n 1 "$berth" worker -t 1 --cache "$dir/shares" || { say "shares with a cache"; exit 1; }
    cmp "$dir/parts.1" "$dir/tale" || { say "shares of a cache tell another tale, round $round"; exit 1; }
done
kept=$(cat "$dir"/shares/* | wc -c) all=$(wc -c < "$root/models/tales-q8_0.gguf")
[ $((100 * kept / all)) -ge 40 ] || { say "of $all bytes a worker with half of each weight has kept $kept"; exit 1; }
say "weights are kept and checked"

"$berth" worker -t 1 2> "$dir/said" && { say "a worker without mpirun"; exit 1; }
grep -q mpirun "$dir/said" || { say "a worker without mpirun does not say what it lacks"; cat "$dir/said"; exit 1; }

# Buffers of a worker that are freed by a handler of the process' end, after the ranks have parted.
ranks -q -n 1 "$world" late : -n 1 "$berth" worker -t 1 > "$dir/said" 2>&1 || { say "what is freed after the end"; cat "$dir/said"; exit 1; }
say "what lies at a worker can be freed after the end"

# A repeated step by layers is one small message a rank beside the activations; nothing grows.
for n in 1 3; do
    ranks -n 1 "$build/tests/mpi-steps" 2 300 : -n $n "$berth" worker -t 1 || { say "steps over $n workers"; exit 1; }
done

# A program that ends without ever asking for devices leaves no worker behind, recovery or not.
for how in --enable-recovery ""; do
    before=$(pgrep -c -f "$berth worker" || true)
    # shellcheck disable=SC2086
    ranks -q $how -n 1 sleep 1 : -n 2 "$berth" worker -t 1 > "$dir/said" 2>&1 || [ $? = 1 ] || { say "a program without devices"; cat "$dir/said"; exit 1; }
    for look in $(seq 100); do # the last may need a moment
        [ "$(pgrep -c -f "$berth worker" || true)" != "$before" ] || break
        [ "$look" -lt 100 ] || { say "a worker is left behind"; exit 1; }
        sleep 0.1
    done
done
say "no worker outlives its program"

# A worker that crashes ends, while MPI starts too: MPI has not taken the signals of that (6, 8 and 11; 7 is its own) to print stacks.
# shellcheck disable=SC2016
ranks -q --enable-recovery -n 1 sh -c 'while [ ! -e "$1" ]; do sleep 0.1; done' sh "$dir/seen" : -n 1 "$berth" worker -t 1 > "$dir/said" 2>&1 &
launcher=$!
for look in $(seq 400); do # until MPI has started threads of its own
    pid=$(pgrep -f "^$berth worker -t 1" | tail -n 1 || true)
    [ -z "$pid" ] || [ "$(find "/proc/$pid/task" -maxdepth 1 2> /dev/null | wc -l)" -lt 6 ] || break
    [ "$look" -lt 400 ] || { say "a worker does not start"; cat "$dir/said"; exit 1; }
    sleep 0.05
done
caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
touch "$dir/seen"
wait $launcher || true
[ $((0x$caught & 0x4a0)) = 0 ] || { say "MPI has taken signals of a worker that starts: $caught"; exit 1; }
say "signals of crashes stay what they are"

# A program whose workers cannot be joined says so and goes on, even where MPI never comes back.
BERTH_MPI_TIMEOUT=1 ranks -q --enable-recovery -n 1 "$berth" devices : -n 1 "$berth" worker -d nowhere > "$dir/tale" 2> "$dir/said" ||
    { say "a program without its worker"; cat "$dir/said"; exit 1; }
grep -q "continues without the others\|is left out" "$dir/said" || { say "a worker that is missing is not told of"; cat "$dir/said"; exit 1; }
mkdir "$dir/stuck"
cp "$build"/lib/libggml*.so* "$dir/stuck/"
cp "$build/tests/mpi-stuck-link.so" "$dir/stuck/libberth-mpi.so"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout 30 "$berth" devices \
    > "$dir/tale" 2> "$dir/said" || { say "a program hangs where MPI does"; cat "$dir/said"; exit 1; }
grep -q "without the others: the first messages between the ranks" "$dir/said" || { say "MPI that hangs is not told of"; cat "$dir/said"; exit 1; }
# The log callback may ask for devices when it is told of that.
asks() { env "$1" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout 30 "$world" ask "$2"; }
asks NOTHING=1 "continues without the others" || { say "a log callback that asks for devices"; exit 1; }
asks BERTH_TEST_SILENT=1 "is left out: it has sent nothing" || { say "a log callback that asks, of a silent rank"; exit 1; }
# One that MPI does not let go later: others of the process are told, and if nobody else can be, it ends where it has asked for that.
holds() { env BERTH_TEST_HELD="$1" BERTH_MPI_HELD="$2" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 BERTH_MPI_TIMEOUT=0.5 LD_LIBRARY_PATH="$dir/stuck" timeout "$3" "$world" > "$dir/said" 2>&1; }
holds others "" 30 && { say "a sum without the other rank"; exit 1; }
grep -q "rank 1 on elsewhere is lost: an MPI call has not returned" "$dir/said" || { say "a thread that MPI does not let go is not told of"; cat "$dir/said"; exit 1; }
holds first end 30 || rc=$?
[ "$rc" = 1 ] && ! grep -q world.c "$dir/said" || { say "a program that MPI does not let go ended with $rc"; cat "$dir/said"; exit 1; }
holds first "" 4 || rc=$?
[ "$rc" = 124 ] || { say "a program that MPI does not let go was ended with $rc, unasked"; cat "$dir/said"; exit 1; }
# One that has ended before the program looks: well before the 30 s that are waited for one that may come.
began=$(date +%s)
ranks -q --enable-recovery -n 1 sh -c 'sleep 1; exec "$@"' sh "$berth" devices : -n 1 true > "$dir/tale" 2> "$dir/said" ||
    { say "a program whose worker has ended"; cat "$dir/said"; exit 1; }
grep -q "ended before it joined" "$dir/said" || { say "a worker that has ended is not told of"; cat "$dir/said"; exit 1; }
[ $(($(date +%s) - began)) -lt 20 ] || { say "a worker that has ended costs $(($(date +%s) - began)) s"; exit 1; }
say "a program goes on without ranks that cannot be joined"

# llama.cpp's own library, where it was fetched: the same logits over workers as alone, bit by bit.
for reference in "$root"/.cache/reference/*-3.22.1; do
    [ -d "$reference" ] || { say "SKIPPED: llama.cpp's binaries are not here (tools/fetch-reference.sh)"; break; }
    mkdir "$dir/llama"
    cp "$reference"/bins/*/libllama*.so "$dir/llama/"
    cp "$build"/lib/libggml-base.so "$build"/lib/libggml-cpu.so "$build"/lib/libggml-mpi.so "$build"/lib/libberth-mpi.so "$dir/llama/"
    cp "$build/lib/libggml.so" "$dir/llama/libggml.v0.5.0.so"
    probe="$build/tests/client-probe $dir/llama"
    model=$root/models/tales-q8_0.gguf
    $probe logits "$model" "$dir/logits" 64 2> /dev/null
    for n in 1 2; do
        # shellcheck disable=SC2086
        tale -n 1 $probe logits "$model" "$dir/logits.$n" 64 : -n $n "$berth" worker -t 1 || { say "libllama over $n workers"; exit 1; }
        cmp "$dir/logits" "$dir/logits.$n" || { say "libllama over $n workers: other logits"; exit 1; }
    done
    # shellcheck disable=SC2086
    tale -n 1 $probe memory "$model" : -n 2 "$berth" worker -t 1
    [ "$($probe memory "$model" 2> /dev/null)" != "$(cat "$dir/tale")" ] || { say "libllama gave the workers nothing"; exit 1; }
    say "libllama over 2 and 3 ranks has the logits it has alone"
done
