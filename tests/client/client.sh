#!/bin/bash
# client.sh BUILD_DIR [STEP...]: runs llama.cpp's own binaries on Berth, for each release in RELEASES (of node-llama-cpp; the first
# is the newest). Each step compares folders of libraries that differ only in the libraries of ggml: stock (all as shipped), base
# (Berth's libggml-base and libggml), other (as base, with the CPU libraries of the other release), cpu (Berth's CPU library with
# ggml's base), berth (only Berth's), and plain (as shipped, with the CPU library for the oldest machine). Requires bash and GNU
# coreutils, as in CI. For the older release, the published models, quantised logits and the quantiser are skipped unless WHOLE=1,
# because they would test little more. REPORT=1 continues after failures that otherwise end a release.
#
#   node     a Node program with node-llama-cpp: all folders must give the same texts
#   switch   an unchanged client uses an installed Berth through LD_LIBRARY_PATH
#   logits   each generated architecture: compares stock and Berth with each other and with f32
#   lora     an adapter of berth train, applied to a model at run time and merged into it
#   parts    tensors split over two and three devices, each of which is the CPU: the same text, and similar logits
#   tokens   the tokenizer of each generated architecture reproduces a text
#   quantize libllama's quantiser writes files with the same accuracy as with the stock base
#   memory   compute buffers of each generated architecture, and of published models at their real dimensions: never larger
#   errors   if the stock client reports an error, Berth's does, too, and Berth causes no abort
#   cycles   contexts are created, used and freed: resident memory and file descriptors do not grow (CYCLES, default 1000)
#   speed    tokens per second of models with 1B weights (ARCHS, TYPES); not part of a default run: writes 4 GB, takes minutes
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd) || exit 1
shift
probe=$build/tests/client-probe
maker=$build/tests/client-model
berth=$build/bin/berth
data=${BERTH_DATA:-../shared}
root=$build/client
tales_q8=$PWD/tests/data/tales-3m-q8_0.gguf
tales=$data/models/tales/tales-f16.gguf
releases=${RELEASES:-3.22.1 3.20.0}
failed=0
skipped=0
export GGML_NO_BACKTRACE=1

fail() {
    echo "  FAILED: $*"
    failed=1
}

skip() {
    echo "  SKIPPED: $*"
    skipped=$((skipped + 1))
}

# ---- folders ----

case $(uname -m) in
    aarch64 | arm64) plain=armv8.0_1 arch=linux-arm64 ;;
    *) plain=x64 arch=linux-x64 ;;
esac

# put_base FOLDER: replaces ggml's base and registry by Berth's, under the file names that the other libraries require.
put_base() {
    rm -f "$1/libggml-base.so" "$1/libggml.$llama.so"
    cp "$build/lib/libggml-base.so" "$1/" && cp "$build/lib/libggml.so" "$1/libggml.$llama.so"
}

# put_cpu FOLDER FILE...: replaces the CPU libraries of the folder by these files.
put_cpu() {
    local folder=$1
    shift
    rm -f "$folder"/libggml-cpu-*.so
    cp "$@" "$folder/"
}

# put KIND FOLDER: changes the libraries of a folder to those of the kind.
put() {
    case $1 in
        stock) [ -z "${RIVAL:-}" ] || put_cpu "$2" "$reference/libggml-cpu-$RIVAL.so" ;; # for speed measurements: only this CPU library
        plain) put_cpu "$2" "$reference/libggml-cpu-$plain.so" ;;
        base) put_base "$2" ;;
        other) put_base "$2" && put_cpu "$2" "$other"/libggml-cpu-*.so ;;
        cpu) put_cpu "$2" "$build/lib/libggml-cpu.so" ;;
        berth) put_base "$2" && put_cpu "$2" "$build/lib/libggml-cpu.so" ;;
    esac
}

# made ARCH TYPE: prints the path of a model. The first call creates it, for all releases, which may run concurrently.
made() {
    local file=$root/models/$1-$2.gguf
    [ -f "$file" ] || { "$maker" "$1" tiny "$2" "$file.$release" && mv "$file.$release" "$file"; } || return 1
    echo "$file"
}

# made_f32 ARCH TYPE: prints the path of the same model with weights in f32.
made_f32() {
    local file=$root/models/$1-$2-f32.gguf
    [ -f "$file" ] || { "$berth" gguf quantize "$(made "$1" "$2")" "$file.$release" f32 >/dev/null && mv "$file.$release" "$file"; } || return 1
    echo "$file"
}

make_folders() {
    rm -rf "$work"
    mkdir -p "$work" "$root/models"
    for f in stock plain base cpu berth; do
        mkdir "$work/$f" && cp "$reference"/* "$work/$f/" && put $f "$work/$f" || return 1
    done
    for a in $("$maker" list); do
        made "$a" f16 >/dev/null || return 1
    done
}

# Whether all checks run for this release.
is_whole() {
    [ "$release" = "${releases%% *}" ] || [ "${WHOLE:-0}" = 1 ]
}

# ---- steps ----

# have_client: sets client to the folder of node-llama-cpp. Returns false after a message if the step is skipped.
have_client() {
    local version
    version=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
    if [ "${version:-0}" -lt 20 ]; then
        skip "node-llama-cpp requires node 20 or newer, found ${version:-none}"
        return 1
    fi
    client=$(tools/fetch-client.sh "$release") || { skip "node-llama-cpp is unavailable"; return 1; }
}

# kinds: prints the kinds of libraries for which texts are compared. The CPU libraries of the other release are included if
# available.
kinds() {
    echo stock base ${other:+other} cpu berth
}

# node_folder KIND: copies the package, with hard links if possible, and changes its libraries to those of the kind.
node_folder() {
    mkdir -p "$work/node/$1"
    cp -al "$client/node_modules" "$work/node/$1/" 2>/dev/null || cp -a "$client/node_modules" "$work/node/$1/"
    put "$1" "$work/node/$1/node_modules/@node-llama-cpp/$arch/bins/$arch"
    cp tests/client/client.mjs "$work/node/$1/"
}

# node_run KIND MODEL OUT: runs client.mjs with the libraries of the kind.
node_run() {
    (cd "$work/node/$1" && timeout 300 node client.mjs run "$2" "$3") || fail "$1 on $2"
}

# same MODEL A B: vectors must be nearly equal. Texts must be equal, except for a q8_0 model: libraries quantise its columns after
# sums that differ in their last bits, and this decides between words that are nearly equally likely.
same() {
    local what=compare
    [[ $1 != *q8_0* ]] || what=vectors
    node tests/client/client.mjs $what "$2" "$3"
}

step_node() {
    local f name model models
    models="$wide $tales_q8"
    echo "== node-llama-cpp: the same text with every mix of libraries"
    have_client || return
    if [ -f "$tales" ]; then
        models="$models $(realpath "$tales")"
    else
        skip "tales-f16: $tales does not exist (set BERTH_DATA)"
    fi
    for f in $(kinds); do
        node_folder "$f"
    done
    for model in $models; do
        name=$(basename "$model" .gguf)
        for f in $(kinds); do
            node_run "$f" "$model" "$work/$name.$f.json"
        done
        for f in $(kinds | cut -d' ' -f2-); do
            printf '  %-11s stock and %-6s' "$name" "$f"
            same "$model" "$work/$name.stock.json" "$work/$name.$f.json" || fail "$f on $name"
        done
    done
}

# Runs the two commands of docs/user/llama.cpp.md.
step_switch() {
    echo "== switch: LD_LIBRARY_PATH names an installed Berth, the client is unchanged"
    have_client || return
    node_folder stock
    node_run stock "$wide" "$work/tales-f32.stock.json"
    LD_LIBRARY_PATH=$(dirname "$(find "$root/installed" -name "libggml.$llama.so")") node_run stock "$wide" "$work/tales-f32.switch.json"
    printf '  '
    same "$wide" "$work/tales-f32.stock.json" "$work/tales-f32.switch.json" || fail "switch"
    printf '  '
    node tests/client/client.mjs libraries "$work/tales-f32.switch.json" "$root/installed/" || fail "not all libraries are Berth's"
}

# logits_of FOLDER MODEL OUT WORD...: writes the logits of the model with the folder's libraries to OUT.bin. WORD: see probe.c.
logits_of() {
    local folder=$1 model=$2 out=$3
    shift 3
    "$probe" "$work/$folder" logits "$model" "$work/$out.bin" 100 "$@" 2>"$work/log" || fail "$folder on $model: $(cat "$work/log")"
}

# stock_logits MODEL WORD...: uses the CPU library that the client selects on this machine. If this library fails with ggml's own
# base (its AMX code aborts on some models), the results of the plain library are used.
stock_logits() {
    stock_fails=
    local model=$1
    shift
    if "$probe" "$work/stock" logits "$model" "$work/stock.bin" 100 "$@" 2>"$work/log"; then
        logits_of base "$model" base "$@"
    else
        stock_fails=yes
        cp "$work/plain.bin" "$work/stock.bin"
    fi
}

# stock_word ROW: prints a remark if the stock libraries fail or give a wrong result for this row of numbers; otherwise nothing.
stock_word() {
    if [ -n "$stock_fails" ]; then
        echo "(stock fails, plain is used)"
    else
        echo "$*" | awk '$4 > 1e-2 && $4 > 10 * $3 { print "(stock is wrong here)" }'
    fi
}

# logits_row KIND ARCH TYPE WORD...: compares Berth's portable kernels with ggml's plain kernels, both of which add in f32. Then
# compares all libraries with f32 weights and f32 keys and values. Libraries for newer machines, including Berth's, add f16 products
# in f16, and all libraries round quantised numbers once more. In these cases Berth may not be further from f32 than ggml, up to a
# factor of 2 for random variation of a largest value (command-r, with small logits, has 1.9). KIND is close, or rounded if the
# first comparison means little. close allows 1e-3, or 1.5 times the distance of the plain kernels from f32 for models as sensitive
# as glm4.
logits_row() {
    local kind=$1 a=$2 type=$3 f row model
    shift 3
    model=$(made "$a" "$type") || fail "make $a $type"
    logits_of plain "$(made_f32 "$a" "$type")" f32 "$@" exact
    for f in plain berth; do
        logits_of $f "$model" $f "$@"
    done
    stock_logits "$model" "$@"
    BERTH_CPU_ISA=portable logits_of berth "$model" portable "$@"
    row=$("$probe" compare "$work/plain.bin" "$work/portable.bin")
    for f in berth plain stock; do
        row="$row $("$probe" compare "$work/f32.bin" "$work/$f.bin")"
    done
    row="$row $("$probe" compare "$work/stock.bin" "$work/berth.bin")"
    # shellcheck disable=SC2086
    printf '  %-26s %14s %10s %10s %10s %12s %s\n' "$a $type $*" $row "$(stock_word $row)"
    echo "$row" | awk -v kind="$kind" '{ far = 2 * ($3 > $4 ? $3 : $4); near = 1.5 * $3 > 1e-3 ? 1.5 * $3 : 1e-3 }
        NF == 5 && $2 <= (far > 1e-3 ? far : 1e-3) && (kind != "close" || $1 <= near) { ok = 1 } END { exit !ok }' || fail "$a $type $*"
    # Berth's base chooses other addresses and another order of nodes, which must not change a result. So with the stock CPU
    # library the logits must be equal byte by byte. shellcheck disable=SC2086
    [ -n "$(stock_word $row)" ] || cmp "$work/stock.bin" "$work/base.bin" || fail "base and stock on $a $type $*"
}

step_logits() {
    local a
    echo "== logits of 100 positions: largest difference / largest value"
    printf '  %-26s %14s %10s %10s %10s %12s\n' "" portable:plain berth:f32 plain:f32 stock:f32 berth:stock
    for a in $("$maker" list); do
        # shellcheck disable=SC2046
        logits_row close "$a" f16 $([ "$a" = bert ] && echo embeddings)
    done
    is_whole || return
    logits_row close llama f16 unfused
    logits_row close llama f16 ubatch
    logits_row close gemma3 f16 unfused ubatch
    logits_row rounded llama f16 q8_0
    for a in llama gpt2 mamba rwkv7 t5; do
        logits_row rounded "$a" q8_0
        logits_row rounded "$a" q4_K
    done
}

# With split mode "tensor", libllama creates a composite device. The stock libraries abort if its parts are CPUs, so only Berth
# runs here.
step_parts() {
    local n a one many row
    echo "== tensors split over devices"
    for n in 2 3; do
        one=$("$probe" "$work/berth" text "$wide" "Once upon a time" 100 2>"$work/log") || fail "text: $(cat "$work/log")"
        many=$(PROBE_PARTS=$n "$probe" "$work/berth" text "$wide" "Once upon a time" 100 2>"$work/log") ||
            fail "text of $n parts: $(cat "$work/log")"
        [ "$one" = "$many" ] || fail "$n parts give another text: $many"
    done
    for a in llama qwen3 gemma3 qwen3moe; do
        BERTH_CPU_ISA=portable logits_of berth "$(made "$a" f16)" one
        BERTH_CPU_ISA=portable PROBE_PARTS=2 logits_of berth "$(made "$a" f16)" many
        row=$("$probe" compare "$work/one.bin" "$work/many.bin")
        echo "  $a: $row"
        echo "$row" | awk '$1 <= 1e-3 { ok = 1 } END { exit !ok }' || fail "logits of $a with two parts differ by $row from those with one"
    done
}

# An adapter of berth train has the same effect in libllama as in Berth: a model with the adapter gives the same logits as the model
# into which berth merged it.
step_lora() {
    local lora=$work/lora.gguf row f
    echo "== an adapter of berth train in libllama: largest difference / largest value"
    "$berth" train "$tales_q8" --lora 4 --lr 0.02 --steps 3 -c 16 -b 2 -t 1 --data README.md -o "$lora" >"$work/log" 2>&1 &&
        "$berth" gguf merge-lora "$wide" "$lora" -o "$work/merged.gguf" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    logits_of plain "$wide" bare exact
    logits_of plain "$work/merged.gguf" merged exact
    for f in plain berth; do
        logits_of $f "$wide" $f "lora=$lora" exact
    done
    row="$("$probe" compare "$work/bare.bin" "$work/plain.bin") $("$probe" compare "$work/merged.bin" "$work/plain.bin")"
    row="$row $("$probe" compare "$work/plain.bin" "$work/berth.bin")"
    # shellcheck disable=SC2086
    printf '  with and without the adapter %s; merged and at run time %s; stock and berth %s\n' $row
    echo "$row" | awk 'NF == 3 && $1 > 1e-2 && $2 < 1e-4 && $3 < 1e-4 { ok = 1 } END { exit !ok }' || fail "the adapter: $row"
}

step_tokens() {
    local a text="once the time and other thing" stock ours n=0
    echo "== tokenizers of the generated models"
    for a in $("$maker" list); do
        stock=$("$probe" "$work/stock" tokens "$(made "$a" f16)" "$text" 2>"$work/log")
        ours=$("$probe" "$work/berth" tokens "$(made "$a" f16)" "$text" 2>"$work/log")
        case $ours in
            *"$text") [ "$ours" = "$stock" ] && n=$((n + 1)) || fail "$a: stock: $stock, berth: $ours" ;;
            *) fail "$a: $ours $(cat "$work/log")" ;;
        esac
    done
    echo "  $n reproduce their text, with the same tokens in both"
}

# The formats are the same, but Berth searches scales in another way, so that the bytes of most types differ. The test compares the
# logits of the quantised models, computed with the same libraries.
step_quantize() {
    local f type error model types="7:Q8_0 15:Q4_K_M"
    is_whole && types="2:Q4_0 3:Q4_1 7:Q8_0 8:Q5_0 9:Q5_1 10:Q2_K 12:Q3_K_M 15:Q4_K_M 17:Q5_K_M 18:Q6_K 25:IQ4_NL 30:IQ4_XS 32:BF16"
    model=$(made llama f16)
    echo "== libllama's quantiser: error of the logits against f16, root mean square"
    printf '  %-8s %10s %10s\n' "" stock berth
    logits_of plain "$model" f16
    for type in $types; do
        error=""
        for f in stock berth; do
            "$probe" "$work/$f" quantize "$model" "$work/$f.gguf" ${type%:*} 2>"$work/log" ||
                fail "$f, $type: $(cat "$work/log")"
            logits_of plain "$work/$f.gguf" quantized
            error="$error $("$probe" compare "$work/f16.bin" "$work/quantized.bin" rms)"
        done
        # shellcheck disable=SC2086
        printf '  %-8s %10s %10s\n' ${type#*:} $error
        echo "$error" | awk '$1 > 0 && $2 <= 1.1 * $1 { ok = 1 } END { exit !ok }' || fail "$type"
        [ "$(stat -c %s "$work/stock.gguf")" = "$(stat -c %s "$work/berth.gguf")" ] || fail "$type: the file sizes differ"
    done
}

# memory_row NAME MODEL: stock and Berth, for a prompt of 512 tokens and for one token.
memory_row() {
    local row="" f u one
    for u in 512 1; do
        for f in stock berth; do
            one=$(timeout 60 "$probe" "$work/$f" memory "$2" 512 $u 2>"$work/log")
            [ -n "$one" ] || [ $f = berth ] || one=fails # ggml itself fails: there is nothing to compare with
            row="$row $one"
        done
    done
    # shellcheck disable=SC2086
    printf '  %-18s %10s %10s %10s %10s\n' "$1" $row
    echo "$row" | awk '
        function fits(stock, berth) { return berth > 0 && (stock == "fails" || (stock > 0 && berth <= stock)) }
        NF == 4 && fits($1, $2) && fits($3, $4) { ok = 1 } END { exit !ok }' || fail "$1: $(cat "$work/log")"
}

step_memory() {
    local a m
    echo "== compute buffers in MiB, context 512: a prompt of 512 tokens, and one token"
    printf '  %-18s %10s %10s %10s %10s\n' "" stock berth stock berth
    for a in $("$maker" list); do
        memory_row "$a" "$(made "$a" f16)"
    done
    is_whole || return
    if [ ! -d "$data/models/sparse" ]; then
        skip "published models: $data/models/sparse does not exist (set BERTH_DATA)"
        return
    fi
    sh "$data/models/sparse/make.sh" "$work/sparse"
    for m in "$work"/sparse/*.gguf; do
        PROBE_EMPTY=1 memory_row "$(basename "$m" .gguf)" "$m"
    done
    rm -rf "$work/sparse"
}

# outcome COMMAND...: prints the outcome of a command in one word. The memory is limited, so that a too large allocation fails
# immediately instead of invoking the OOM killer.
outcome() {
    local status
    (ulimit -v 8000000 && exec timeout 60 "$@") >"$work/out" 2>"$work/log"
    status=$?
    case $status in
        0) echo fine ;;
        3) echo refused ;;
        134) grep -q '/src/llama' "$work/log" && echo "libllama aborts" || echo ABORTED ;;
        *) echo "ENDED WITH $status" ;;
    esac
}

# error_case NAME PROBE_ARGUMENTS...: with the stock libraries and with Berth's.
error_case() {
    local name=$1 stock ours
    shift
    stock=$(outcome "$probe" "$work/stock" "$@")
    ours=$(outcome "$probe" "$work/berth" "$@")
    [ "${quiet:-}" = 1 ] || printf '  %-42s %-16s %s\n' "$name" "$stock" "$ours"
    case $ours in
        "$stock" | refused) ;; # an error is good if stock aborts, and bad if stock succeeds
        *) fail "$name: stock: $stock, berth: $ours: $(head -c 400 "$work/log")" ;;
    esac
    [ "$stock/$ours" = fine/refused ] && fail "$name: stock succeeds, Berth refuses: $(head -c 400 "$work/log")"
}

step_errors() {
    local llama bad=$work/bad.gguf size i n=60
    llama=$(made llama f16)
    echo "== errors: outcomes with the stock libraries and with Berth"
    size=$(stat -c %s "$llama")
    error_case "no such file" memory "$work/none.gguf"
    : >"$bad" && error_case "empty file" memory "$bad"
    head -c 1000 "$llama" >"$bad" && error_case "header cut" memory "$bad"
    head -c $((size - 100000)) "$llama" >"$bad" && error_case "weights cut" memory "$bad"
    LC_ALL=C sed 's/llama/lemma/g' "$llama" >"$bad" && error_case "unknown architecture" memory "$bad"
    LC_ALL=C sed 's/block_count/block_caunt/' "$llama" >"$bad" && error_case "a key is missing" memory "$bad"
    LC_ALL=C sed 's/ffn_up/ffn_uq/' "$llama" >"$bad" && error_case "a tensor is missing" memory "$bad"
    for i in ctx batch token position sequence ubatch type seqs; do
        error_case "$(sed -n "s|.*{\"$i\", .*// ||p" tests/client/probe.c)" errors "$llama" $i
    done
    quiet=1
    for i in $(seq 1 $n); do
        cp "$llama" "$bad"
        printf "\\$(printf %03o $((i * 37 % 256)))" | dd of="$bad" bs=1 seek=$((i * 7919 % 24000)) conv=notrunc 2>/dev/null
        error_case "byte $((i * 7919 % 24000)) set to $((i * 37 % 256))" memory "$bad"
    done
    quiet=
    echo "  $n files with one changed byte: the same outcomes"
}

step_cycles() {
    local n=${CYCLES:-1000}
    echo "== $n contexts created, used and freed"
    printf '  '
    "$probe" "$work/berth" cycles "$(made llama f16)" "$n" || fail "cycles"
}

# Tokens per second of CPU time with one thread, because these do not depend on the load of the machine. Stock and Berth run
# alternately.
step_speed() {
    local arch type i s b pp=${PP:-128} tg=${TG:-8} threads=${THREADS:-1}
    echo "== tokens per processor second, models of about 1B weights, prompt of $pp and $tg tokens one by one, threads: $threads"
    printf '  %-16s %10s %10s %7s %10s %10s %7s\n' "" prompt: berth ratio decode: berth ratio
    for arch in ${ARCHS:-llama}; do for type in ${TYPES:-q4_K q8_0 f16}; do
        "$maker" "$arch" 1b $type "$root/models/1b.gguf" || fail "1b $arch $type"
        : >"$work/speed"
        for i in 1 2; do
            s=$("$probe" "$work/stock" speed "$root/models/1b.gguf" $pp $tg $threads 2>"$work/log") || fail "stock: $(cat "$work/log")"
            b=$("$probe" "$work/berth" speed "$root/models/1b.gguf" $pp $tg $threads 2>"$work/log") || fail "berth: $(cat "$work/log")"
            echo "$s $b" >>"$work/speed"
        done
        awk -v type="$arch $type" '{ for (i = 1; i <= 8; i++) if ($i > m[i]) m[i] = $i }
            END { printf "  %-16s %10.2f %10.2f %7.2f %10.2f %10.2f %7.2f\n", type, m[3], m[7], m[7] / m[3], m[4], m[8], m[8] / m[4] }' "$work/speed"
    done; done
    rm -f "$root/models/1b.gguf"
}

# Prints the folder of the other release in RELEASES. A client of this release may find and load its CPU libraries.
other_release() {
    local r
    for r in $releases; do
        [ "$r" = "$release" ] || { tools/fetch-reference.sh "$r"; return; }
    done
}

# try_release VERSION STEP...: runs the steps for one release.
try_release() {
    release=$1
    shift
    reference=$(tools/fetch-reference.sh "$release") || { skip "release $release: its binaries are unavailable"; return; }
    other=$(other_release) || other=
    llama=$(basename "$reference"/libllama.*.so .so)
    llama=${llama#libllama.}
    work=$root/$release
    echo "==== node-llama-cpp $release, llama.cpp $llama"
    make_folders || { fail "cannot create the folders in $work"; return; }
    # The columns of products with f32 weights are not quantised, so rounding does not change the text of this model.
    wide=$work/tales-f32.gguf
    "$berth" gguf quantize "$tales_q8" "$wide" f32 >"$work/log" 2>&1 || { fail "$(cat "$work/log")"; return; }
    "$berth" client "$reference" >"$work/log" 2>&1 || { fail "Berth lacks functions that the release imports"; cat "$work/log"; [ "${REPORT:-0}" = 1 ] || return; }
    for step in "$@"; do
        "step_$step"
    done
}

# Releases run concurrently, each with its own folder and its own log. The log is printed when it is complete.
# shellcheck disable=SC2086
try_all() {
    local release n_failed n_skipped
    for release in $releases; do
        {
            try_release "$release" "$@"
            echo "$failed $skipped" >"$root/$release.status"
        } >"$root/$release.log" 2>&1 &
    done
    wait
    for release in $releases; do
        cat "$root/$release.log"
        n_failed=1 n_skipped=0
        read -r n_failed n_skipped <"$root/$release.status"
        failed=$((failed + n_failed))
        skipped=$((skipped + n_skipped))
    done
}

rm -rf "$root"
mkdir -p "$root"
cmake --install "$build" --prefix "$root/installed" >"$root/log" || { cat "$root/log"; exit 1; } # for the step switch
# shellcheck disable=SC2086
case " $* " in
    *" speed "*) for release in $releases; do try_release "$release" "$@"; done ;; # not concurrently
    *) try_all ${*:-node switch tokens logits parts lora quantize memory errors cycles} ;;
esac
echo "client: $([ $failed = 0 ] && echo "passed" || echo FAILED), $skipped skipped, ${SECONDS} s"
[ $failed = 0 ]
