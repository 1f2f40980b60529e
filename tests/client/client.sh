#!/bin/bash
# llama.cpp's own binaries on Berth: client.sh BUILD_DIR [STEP...], for each release in RELEASES (of node-llama-cpp; the first is the
# newest). Each step compares folders of libraries that differ in ggml's alone: stock (all as shipped), base (Berth's libggml-base and
# libggml), other (the same with the CPU libraries of the other release), cpu (Berth's CPU library on ggml's base), berth (Berth
# throughout), and plain (as shipped, with the CPU library for the oldest machine). Needs bash and GNU's coreutils, as the CI has.
# What says little more for a second release (published models, quantised logits, the quantiser) is left out there unless WHOLE=1.
# REPORT=1 goes on after failures that end a release.
#
#   node     a Node program with node-llama-cpp: texts must be the same in all
#   switch   an installed Berth under an untouched client, by LD_LIBRARY_PATH alone
#   logits   each made architecture: stock and Berth against each other and against f32
#   lora     an adapter that berth train made, beside a model and merged into it
#   parts    tensors split over two and three devices, each of them the CPU: the text is the same, the logits are close
#   tokens   each made architecture's tokenizer gives a text back
#   quantize libllama's quantiser makes files as good as with the stock base
#   memory   compute buffers of each made architecture, and of published models at their real dimensions: never larger
#   errors   wherever the stock client reports an error, so does Berth's, and no abort is Berth's
#   cycles   contexts made, used and freed: resident memory and file descriptors stay flat (CYCLES, default 1000)
#   speed    tokens per second of models of 1B weights (ARCHS, TYPES); not part of a plain run: it writes 4 GB and takes minutes
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd) || exit 1
shift
probe=$build/tests/client-probe
maker=$build/tests/client-model
berth=$build/bin/berth
data=${BERTH_DATA:-../shared}
root=$build/client
shipped=$PWD/models/tales-q8_0.gguf
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

# In a folder of the client's binaries: Berth's libraries under the names that the others ask for.
put_base() {
    rm -f "$1/libggml-base.so" "$1/libggml.$llama.so"
    cp "$build/lib/libggml-base.so" "$1/" && cp "$build/lib/libggml.so" "$1/libggml.$llama.so"
}

# put_cpu FOLDER FILE...: these in place of its CPU libraries.
put_cpu() {
    local folder=$1
    shift
    rm -f "$folder"/libggml-cpu-*.so
    cp "$@" "$folder/"
}

# put KIND FOLDER
put() {
    case $1 in
        stock) [ -z "${RIVAL:-}" ] || put_cpu "$2" "$reference/libggml-cpu-$RIVAL.so" ;; # for speeds: that one alone
        plain) put_cpu "$2" "$reference/libggml-cpu-$plain.so" ;;
        base) put_base "$2" ;;
        other) put_base "$2" && put_cpu "$2" "$other"/libggml-cpu-*.so ;;
        cpu) put_cpu "$2" "$build/lib/libggml-cpu.so" ;;
        berth) put_base "$2" && put_cpu "$2" "$build/lib/libggml-cpu.so" ;;
    esac
}

# made ARCH TYPE: the path of a model, made at the first call, for all releases, which may run at the same time.
made() {
    local file=$root/models/$1-$2.gguf
    [ -f "$file" ] || { "$maker" "$1" tiny "$2" "$file.$release" && mv "$file.$release" "$file"; } || return 1
    echo "$file"
}

# The same with weights in f32.
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

# Is this the release that everything is tried with?
is_whole() {
    [ "$release" = "${releases%% *}" ] || [ "${WHOLE:-0}" = 1 ]
}

# ---- steps ----

# The folder of node-llama-cpp in $client; false: said why it is skipped.
have_client() {
    local version
    version=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
    if [ "${version:-0}" -lt 20 ]; then
        skip "node-llama-cpp needs node 20 or newer, here is ${version:-none}"
        return 1
    fi
    client=$(tools/fetch-client.sh "$release") || { skip "node-llama-cpp cannot be had here"; return 1; }
}

# kinds: of libraries that a text is tried with. The other release's CPU libraries are there if they can be had.
kinds() {
    echo stock base ${other:+other} cpu berth
}

# node_folder KIND: a copy of the package (hard links where they can be made) with such libraries.
node_folder() {
    mkdir -p "$work/node/$1"
    cp -al "$client/node_modules" "$work/node/$1/" 2>/dev/null || cp -a "$client/node_modules" "$work/node/$1/"
    put "$1" "$work/node/$1/node_modules/@node-llama-cpp/$arch/bins/$arch"
    cp tests/client/client.mjs "$work/node/$1/"
}

# node_run KIND MODEL OUT
node_run() {
    (cd "$work/node/$1" && timeout 300 node client.mjs run "$2" "$3") || fail "$1 on $2"
}

# same_text MODEL A B: of a model in q8_0 vectors alone, where the reference's own libraries for this machine and for the oldest one
# tell different texts: then rounding chooses words.
same_text() {
    local name
    name=$(basename "$1" .gguf)
    node tests/client/client.mjs compare "$2" "$3" && return
    [[ $name == *q8_0* ]] || return 1
    [ -f "$work/$name.plain.json" ] || { node_folder plain && node_run plain "$1" "$work/$name.plain.json"; }
    ! node tests/client/client.mjs compare "$work/$name.stock.json" "$work/$name.plain.json" > /dev/null || return 1
    printf '  so do the reference alone and its library for the oldest machine; but for the texts, '
    node tests/client/client.mjs vectors "$2" "$3"
}

step_node() {
    local f name model models=$shipped
    echo "== node-llama-cpp: the same text with every mix of libraries"
    have_client || return
    if [ -f "$tales" ]; then
        models="$models $(realpath "$tales")"
    else
        skip "tales-f16: there is no $tales (set BERTH_DATA)"
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
            same_text "$model" "$work/$name.stock.json" "$work/$name.$f.json" || fail "$f on $name"
        done
    done
}

# The two commands of docs/user/llama.cpp.md.
step_switch() {
    local name
    name=$(basename "$shipped" .gguf)
    echo "== the switch: LD_LIBRARY_PATH names an installed Berth, the client is untouched"
    have_client || return
    node_folder stock
    node_run stock "$shipped" "$work/$name.stock.json"
    LD_LIBRARY_PATH=$(dirname "$(find "$root/installed" -name "libggml.$llama.so")") node_run stock "$shipped" "$work/$name.switch.json"
    printf '  '
    same_text "$shipped" "$work/$name.stock.json" "$work/$name.switch.json" || fail "switch"
    printf '  '
    node tests/client/client.mjs libraries "$work/$name.switch.json" "$root/installed/" || fail "not all libraries are Berth's"
}

# logits_of FOLDER MODEL OUT WORD...
logits_of() {
    local folder=$1 model=$2 out=$3
    shift 3
    "$probe" "$work/$folder" logits "$model" "$work/$out.bin" 100 "$@" 2>"$work/log" || fail "$folder on $model: $(cat "$work/log")"
}

# With the CPU library that the client takes here. Where that fails under ggml's own base (its AMX part aborts on some models), the
# plain one stands for it.
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

# stock_word ROW: why a row says nothing of the stock libraries, if it does not.
stock_word() {
    if [ -n "$stock_fails" ]; then
        echo "(stock fails: plain in its place)"
    else
        echo "$*" | awk '$4 > 1e-2 && $4 > 10 * $3 { print "(stock is wrong here)" }'
    fi
}

# logits_row KIND ARCH TYPE WORD...: Berth's portable kernels against ggml's plain ones, both of which add in floats; then all
# against f32 weights with f32 keys and values. Libraries for newer machines, Berth's too, add products of f16 in halves, and
# quantised numbers are rounded once more by all: there Berth may be no further from f32 than ggml, give or take the chance that
# a largest value depends on (up to 2 times: command-r, of small logits, 1.9). KIND is close, or rounded where that first comparison
# means little; close is 1e-3, or 1.5 times what the plain kernels are from f32 where a model is as sensitive as glm4.
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
    # Places in memory and the order of nodes change no number: with the stock CPU library below, the same bytes.
    # shellcheck disable=SC2086
    [ -n "$(stock_word $row)" ] || cmp "$work/stock.bin" "$work/base.bin" || fail "base and stock on $a $type $*"
}

step_logits() {
    local a
    echo "== logits of 100 positions: largest difference over largest value"
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

# Split mode tensor: libllama makes a device of several. The stock base ends its process with CPUs.
step_parts() {
    local n a one many row
    echo "== tensors split over devices"
    for n in 2 3; do
        one=$("$probe" "$work/berth" text "$shipped" "Once upon a time" 100 2>"$work/log") || fail "text: $(cat "$work/log")"
        many=$(PROBE_PARTS=$n "$probe" "$work/berth" text "$shipped" "Once upon a time" 100 2>"$work/log") ||
            fail "text of $n parts: $(cat "$work/log")"
        [ "$one" = "$many" ] || fail "$n parts tell another tale: $many"
    done
    for a in llama qwen3 gemma3 qwen3moe; do
        BERTH_CPU_ISA=portable logits_of berth "$(made "$a" f16)" one
        BERTH_CPU_ISA=portable PROBE_PARTS=2 logits_of berth "$(made "$a" f16)" many
        row=$("$probe" compare "$work/one.bin" "$work/many.bin")
        echo "  $a: $row"
        echo "$row" | awk '$1 <= 1e-3 { ok = 1 } END { exit !ok }' || fail "two parts of $a are $row away from one"
    done
}

# An adapter that berth train made means in libllama what it means in Berth: on top of a model it says what the model says that
# berth merged with it.
step_lora() {
    local lora=$work/lora.gguf row f
    echo "== an adapter of berth train in libllama: largest difference over largest value"
    "$berth" train "$shipped" --lora 4 --lr 0.02 --steps 3 -c 16 -b 2 -t 1 --data README.md -o "$lora" >"$work/log" 2>&1 &&
        "$berth" gguf quantize "$shipped" "$work/wide.gguf" f32 >"$work/log" 2>&1 &&
        "$berth" gguf merge-lora "$work/wide.gguf" "$lora" -o "$work/merged.gguf" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    logits_of plain "$work/wide.gguf" bare exact
    logits_of plain "$work/merged.gguf" merged exact
    for f in plain berth; do
        logits_of $f "$work/wide.gguf" $f "lora=$lora" exact
    done
    row="$("$probe" compare "$work/bare.bin" "$work/plain.bin") $("$probe" compare "$work/merged.bin" "$work/plain.bin")"
    row="$row $("$probe" compare "$work/plain.bin" "$work/berth.bin")"
    # shellcheck disable=SC2086
    printf '  without and with it %s; merged and beside %s; stock and berth %s\n' $row
    echo "$row" | awk 'NF == 3 && $1 > 1e-2 && $2 < 1e-4 && $3 < 1e-4 { ok = 1 } END { exit !ok }' || fail "the adapter: $row"
}

step_tokens() {
    local a text="once the time and other thing" stock ours n=0
    echo "== tokenizers of the made models"
    for a in $("$maker" list); do
        stock=$("$probe" "$work/stock" tokens "$(made "$a" f16)" "$text" 2>"$work/log")
        ours=$("$probe" "$work/berth" tokens "$(made "$a" f16)" "$text" 2>"$work/log")
        case $ours in
            *"$text") [ "$ours" = "$stock" ] && n=$((n + 1)) || fail "$a: stock: $stock, berth: $ours" ;;
            *) fail "$a: $ours $(cat "$work/log")" ;;
        esac
    done
    echo "  $n give their text back, the same with both"
}

# The formats are the same; Berth searches scales in its own way, so the bytes of most types differ. What counts is what the
# model then says, run on the same libraries.
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
        [ "$(stat -c %s "$work/stock.gguf")" = "$(stat -c %s "$work/berth.gguf")" ] || fail "$type: not of one size"
    done
}

# memory_row NAME MODEL: stock and Berth, a prompt of 512 and one token.
memory_row() {
    local row="" f u one
    for u in 512 1; do
        for f in stock berth; do
            one=$(timeout 60 "$probe" "$work/$f" memory "$2" 512 $u 2>"$work/log")
            [ -n "$one" ] || [ $f = berth ] || one=fails # ggml's own end: nothing to compare with
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
        skip "published models: there is no $data/models/sparse (set BERTH_DATA)"
        return
    fi
    sh "$data/models/sparse/make.sh" "$work/sparse"
    for m in "$work"/sparse/*.gguf; do
        PROBE_EMPTY=1 memory_row "$(basename "$m" .gguf)" "$m"
    done
    rm -rf "$work/sparse"
}

# What becomes of a command, in a word. Its memory is bounded: what is too large fails at once, not by the system's hand.
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
        "$stock" | refused) ;; # an error where stock runs into an abort is welcome, where stock is fine it is not
        *) fail "$name: stock: $stock, berth: $ours: $(head -c 400 "$work/log")" ;;
    esac
    [ "$stock/$ours" = fine/refused ] && fail "$name: stock runs, Berth refuses: $(head -c 400 "$work/log")"
}

step_errors() {
    local llama bad=$work/bad.gguf size i n=60
    llama=$(made llama f16)
    echo "== errors: what happens with the stock libraries, and with Berth"
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
    echo "  $n files with one byte changed: the same answers"
}

step_cycles() {
    local n=${CYCLES:-1000}
    echo "== $n contexts made, used and freed"
    printf '  '
    "$probe" "$work/berth" cycles "$(made llama f16)" "$n" || fail "cycles"
}

# Tokens per second of processor time with one thread: what a busy machine cannot change. Stock and Berth take turns.
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

# The other release that is tried, whose CPU libraries this one's clients may meet.
other_release() {
    local r
    for r in $releases; do
        [ "$r" = "$release" ] || { tools/fetch-reference.sh "$r"; return; }
    done
}

# try_release VERSION STEP...
try_release() {
    release=$1
    shift
    reference=$(tools/fetch-reference.sh "$release") || { skip "release $release: its binaries cannot be fetched"; return; }
    other=$(other_release) || other=
    llama=$(basename "$reference"/libllama.*.so .so)
    llama=${llama#libllama.}
    work=$root/$release
    echo "==== node-llama-cpp $release, llama.cpp $llama"
    make_folders || { fail "the folders cannot be made in $work"; return; }
    "$berth" client "$reference" >"$work/log" 2>&1 || { fail "it lacks functions"; cat "$work/log"; [ "${REPORT:-0}" = 1 ] || return; }
    for step in "$@"; do
        "step_$step"
    done
}

# Releases run side by side, each with its own folder and its own log, which is printed when it is whole.
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
cmake --install "$build" --prefix "$root/installed" >"$root/log" || { cat "$root/log"; exit 1; } # for the switch
# shellcheck disable=SC2086
case " $* " in
    *" speed "*) for release in $releases; do try_release "$release" "$@"; done ;; # nothing else may run
    *) try_all ${*:-node switch tokens logits parts lora quantize memory errors cycles} ;;
esac
echo "client: $([ $failed = 0 ] && echo "all as it should be" || echo FAILED), $skipped skipped, ${SECONDS} s"
[ $failed = 0 ]
