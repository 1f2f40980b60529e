#!/bin/sh
# SPDX-License-Identifier: MIT
# models.sh BERTH: `berth bench`, `explain`, `fit`, `embed`, `imatrix` and `plan` with models: exit codes, texts, a full disk. Runs
# in the root of the sources. Headers of large models are in the data directory (BERTH_DATA, default ../shared).

. "$(dirname "$0")/expect.sh"
tales=tests/data/tales-3m-q8_0.gguf
sparse=${BERTH_DATA:-../shared}/models/sparse

fail() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

head -c 3000 /dev/urandom > "$tmp/noise"
for part in bench explain fit; do
    expect 0 "Usage: berth $part" $part --help
    expect 2 "unknown option '--nonsense'" $part --nonsense
    expect 2 "requires a value" $part --device
    expect 3 "cannot be read: No such file" $part $([ $part = fit ] && echo --memory 1G) "$tmp/none"
    expect 3 "not a GGUF file" $part $([ $part = fit ] && echo --memory 1G) "$tmp/noise"
    [ $part = bench ] || [ $part = run ] || expect 2 "unexpected argument 'b': $part takes" $part $([ $part = fit ] && echo --memory 1G) a b
    expect 3 "unknown device 'abacus'" $part $([ $part = fit ] && echo --memory 1G) --device abacus
    "$berth" $part $([ $part = fit ] && echo --memory 1G) $([ $part = bench ] && echo -p 8 -n 2 -r 1) > /dev/full 2> "$tmp/err"
    [ $? -eq 3 ] || fail "$part: a full standard output is not a failure"
done

# bench
expect 0 "| Harbour Tales q8_0 | 3.33 MiB | 3.28 M | CPU | 1 | f16,f16 | pp16 |" bench -p 16 -n 4 -r 2 -t 1 $tales
expect 0 '"cache": "q8_0,f16", "test": "tg"' bench -p 0 -n 4 -r 1 --cache-type q8_0,f16 --json
expect 0 "| pp16 |" bench --memory 4200K --allow batch -p 16 -n 0 -r 1 $tales
expect 3 "--memory is not enough: a context of 16 requires" bench --memory 1M -p 16 -n 0 -r 1 $tales
expect 2 "--allow requires --memory" bench --allow spill $tales
expect 0 "| tg4 |" bench -p 16 -n 4 -r 2 $tales
expect 0 'model,size,params,backend,threads,batch,cache,test,tokens,depth,mean,deviation' bench -p 8 -n 0 -r 1 -b 3 --output csv
expect 0 '"test": "tg", "tokens": 4, "depth": 0, "mean": ' bench -p 0 -n 4 -r 1 --json
expect 2 "--format 'xml' is not one of: md csv json jsonl" bench --output xml
expect 2 "leave nothing to measure" bench -p 0,0 -n 0
expect 2 "--prompt 'x' is not an integer from 0 to 16777216" bench -p 8,x
expect 2 "--threads '' is not an integer from 1 to 1024" bench -t 1,
expect 0 "| pp4 |" bench -p 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4 -n 0 -r 1 -t 1
expect 0 "| 2 | f16,f16 | tg2 @ d4 |" bench -p 8,16 -n 0,2 -t 1,2 -r 1 --depth 0,4 $tales
[ "$(wc -l < "$tmp/out")" -eq 14 ] || fail "bench with lists: $(cat "$tmp/out")"
expect 0 '"depth": 0, "mean"' bench -p 8 -n 0 -r 1 --format jsonl $tales -m $tales
[ "$(wc -l < "$tmp/out")" -eq 2 ] || fail "bench of two models: $(cat "$tmp/out")"
expect 2 "--reps '0' is not an integer from 1 to 1000" bench -r 0

# imatrix: quantize accepts the file
expect 0 "29 matrices, from 3 contexts of 32 tokens" imatrix -c 32 --chunks 3 -o "$tmp/imatrix.gguf" $tales README.md
expect 0 '"tensors": 29, "chunks": 2, "tokens": 16' imatrix --json -c 8 --chunks 2 -o "$tmp/small.gguf" $tales README.md
expect 0 "58 tensors" gguf info "$tmp/imatrix.gguf"
expect 0 "valid" gguf check "$tmp/imatrix.gguf"
expect 0 "29 of 38 tensors as iq2_xxs" gguf quantize --imatrix "$tmp/imatrix.gguf" $tales "$tmp/iq2.gguf" iq2_xxs
expect 0 "prompt: 10 tokens" run -n 3 "$tmp/iq2.gguf"
printf '</s></s></s></s></s></s></s></s></s></s>' > "$tmp/spelled" # in a text, the name of a control token is plain text
expect 0 "from 1 context of 40 tokens" imatrix -c 40 -o "$tmp/x" $tales "$tmp/spelled"
mkdir "$tmp/folder"
expect 3 "cannot be read: Is a directory" imatrix -o "$tmp/x" $tales "$tmp/folder"
expect 2 "missing option: --out OUT" imatrix $tales README.md
expect 2 "missing argument: -o OUT MODEL TEXT" imatrix -o "$tmp/x" $tales
expect 3 "cannot be read: No such file" imatrix -o "$tmp/x" $tales "$tmp/none"
cp $tales "$tmp/model"
expect 3 "this file is also an input" imatrix -c 8 --chunks 1 -o "$tmp/model" "$tmp/model" README.md
expect 3 "tokens, but a context needs 512" imatrix -o "$tmp/x" $tales .gitignore
expect 3 "writing failed: No space left on device" imatrix -c 8 --chunks 1 -o /dev/full $tales README.md

# explain
expect 0 "alive at step" explain $tales
expect 0 '"alive": {"step": 26, "bytes": ' explain --json $tales
expect 0 "lower    -b 256 saves" explain $tales
expect 0 "split 0: CPU, 118 nodes, 0 inputs, 0 bytes" explain $tales
expect 0 "a batch of 7 tokens over 9 positions" explain -b 7 -c 9 $tales
expect 0 '"prompt": {"backends": [{"name": "CPU"' explain --json $tales
expect 0 "1 token at position 7" explain --split tensor --device CPU,CPU -b 7 -c 9 $tales
expect 0 "sums over 2 devices with" explain --split tensor --device CPU,CPU $tales
expect 2 "--json and --split tensor cannot be combined" explain --split tensor --json $tales

# fit
expect 0 "context 256, batch 256" fit --memory 10M $tales
expect 0 "context  limited to the context of training; --max-ctx raises the limit" fit --memory 10M $tales
expect 0 "batch    the whole context" fit --memory 10M $tales
expect 0 "768.00 KiB  28.5%  blk.0.ffn.gate               MUL_MAT" fit --memory 10M $tales
expect 0 "lower    -b 128 saves 1.31 MiB" fit --memory 10M $tales
expect 0 "context 2048, batch 2048" fit --memory 1G --max-ctx 2048 $tales
expect 0 "context  limited by --max-ctx" fit --memory 1G --max-ctx 2048 $tales
expect 0 "context  limited by memory" fit --memory 5M $tales
expect 0 "context 100, batch 100" fit --memory 1G --ctx 100 $tales
expect 0 '"ctx": 300, "ctx_limit": "given", "batch": 1' fit --json --memory 6M --ctx 300 -t 2 $tales
expect 0 '"batch_limit": "memory"' fit --json --memory 6M --ctx 300 -t 2 $tales
expect 0 "batch 7" fit --memory 1G --batch 7 $tales
expect 1 "does not fit: a context of 1 with a batch of 1 requires" fit --memory 1M $tales
expect 1 '"fits": false' fit --json --memory 3MB
expect 2 "missing option: --memory N" fit
expect 0 "3 users with a full context of 256 tokens, up to 3 at the same time" fit "$tales" --memory 1G --parallel 3
expect 0 "3 users: " fit "$tales" --memory 1G --parallel 3
expect 0 " tokens/s predicted, " fit "$tales" --memory 1G --parallel 3
expect 0 "one more user waits: with the running requests, " fit "$tales" --memory 120M --parallel 60
expect 1 "--memory is 2097152; lower --ctx or --parallel" fit --memory 2M --parallel 3
expect 2 "--parallel requires --memory N without a device" fit --memory CPU=1G --parallel 3
expect 2 "--parallel requires --memory N without a device" fit --memory 1G --parallel 3 --allow batch
expect 2 "--parallel requires --memory N without a device" fit --cluster none.json --parallel 3
expect 0 "one more user waits: 2 requests run, which is the limit; the request can start in 255 steps or earlier" explain "$tales" --parallel 2
expect 2 "--memory requires --parallel" explain --memory 1G
expect 2 "--memory 'much' is neither a number of bytes" fit --memory much

expect 0 "context 256, batch" fit --memory 5M --allow batch,cache-type $tales
expect 0 "  cache    q4_0" fit --memory 5M --allow cache-type $tales
expect 0 "tokens/s predicted, with half of the context filled, from a measurement of the model" fit --memory 5M --allow cache-type $tales
expect 0 "of all devices: context 256, batch 256, cache f16" fit --memory 5M --allow batch $tales
expect 0 '"next": [{"device": "all", "memory": 1078984704, "ctx": 256' fit --json --memory 5M $tales
expect 0 '"next": []' fit --json --memory 1G $tales
expect 2 "--allow: unknown value 'all'; use cache-type, batch, spill, recompute" fit --memory 5M --allow batch,all
expect 0 "ops      none recomputed: not needed" fit --memory 10M --allow recompute $tales
expect 1 "ops      none recomputed: no schedule fits; compute takes 2.63 MiB" fit --memory 6M -c 256 -b 256 --allow recompute $tales
expect 1 "ops      none recomputed: more bytes are missing than compute takes" fit --memory 2M -c 256 -b 256 --allow recompute $tales
expect 0 '"again": 0, "slower": 1.000000, "saved": 0' fit --json --memory 10M --allow recompute $tales
expect 2 "--allow requires --memory" run --allow batch
expect 2 "--allow: unknown value 'some'" run --memory 5M --allow some
expect 3 "--memory is not enough: a context of 256 requires" run --memory 6M -c 256 -b 256 --allow recompute -n 2 $tales
expect 3 "--memory is not enough: a context of 256 requires" run --memory 4200K -c 256 -n 2 $tales
expect 2 "--memory 'little' is neither a number of bytes" run --memory little

# The result of fit fits, and a limit one byte smaller gives a smaller result.
number() {
    grep -o "\"$1\": [0-9]*" "$2" | head -n 1 | tr -dc 0-9
}
"$berth" fit --json --memory 4500K $tales > "$tmp/fit"
total=$(number total "$tmp/fit")
[ "$total" -le 4608000 ] || fail "fit: $total bytes are more than 4500K"
"$berth" fit --json --memory "$total" $tales > "$tmp/same"
[ "$(number ctx "$tmp/fit") $(number batch "$tmp/fit")" = "$(number ctx "$tmp/same") $(number batch "$tmp/same")" ] ||
    fail "fit: another answer for the bytes of the answer: $(cat "$tmp/fit" "$tmp/same")"
"$berth" fit --json --memory $((total - 1)) $tales > "$tmp/less"
[ "$(number ctx "$tmp/less") $(number batch "$tmp/less")" != "$(number ctx "$tmp/fit") $(number batch "$tmp/fit")" ] ||
    fail "fit: one byte less makes no difference"
"$berth" fit --json --memory 6M --ctx 300 $tales > "$tmp/batch" 2> "$tmp/err"
expect 1 '"fits": false' fit --json --memory 6M --ctx 300 -b $(($(number batch "$tmp/batch") + 1)) $tales
# The bytes that fit reports are those that run uses, and run with that memory limit finds the same settings.
"$berth" run --json -n 1 -c "$(number ctx "$tmp/fit")" -b "$(number batch "$tmp/fit")" $tales > "$tmp/run"
for part in cache compute work; do
    [ "$(number $part "$tmp/run")" = "$(number $part "$tmp/fit")" ] || fail "fit and run differ: $(cat "$tmp/fit" "$tmp/run")"
done
"$berth" fit --json --memory 5M --allow batch,cache-type,spill,recompute $tales > "$tmp/fit"
"$berth" run --json -n 1 --memory 5M $tales > "$tmp/run"
for part in cache compute work; do
    [ "$(number $part "$tmp/run")" = "$(number $part "$tmp/fit")" ] ||
        fail "fit --allow and run --memory differ: $(cat "$tmp/fit" "$tmp/run")"
done

# Recomputed ops: fit reports their saving and cost, run uses no more memory than that, and generates the same text.
if [ -n "${BERTH_MAKE_MODEL:-}" ]; then
    "$BERTH_MAKE_MODEL" mamba2 tiny f32 "$tmp/made.gguf" || fail "no made model"
    set -- -t 2 -c 256 -b 256 "$tmp/made.gguf"
    "$berth" fit --json --memory 1G "$@" > "$tmp/once"
    memory=$(($(number total "$tmp/once") - 800000))
    expect 1 "does not fit" fit --memory $memory "$@"
    expect 0 "1 of 74 of a batch recomputed: saves 879.50 KiB of 3.13 MiB of compute; prefill costs 1.0028 times as much" \
        fit --memory $memory --allow recompute "$@"
    "$berth" fit --json --memory $memory --allow recompute "$@" > "$tmp/fit"
    [ "$(number again "$tmp/fit")" = 1 ] && [ "$(number saved "$tmp/fit")" = 900608 ] && [ "$(number total "$tmp/fit")" -le $memory ] ||
        fail "fit --allow recompute: $(cat "$tmp/fit")"
    prompt=$(printf 'a quick brown fox %.0s' 1 2 3 4 5 6 7 8 9)
    "$berth" run --json --temp 0 -n 20 -p "$prompt" "$@" > "$tmp/run-once"
    "$berth" run --json --temp 0 -n 20 -p "$prompt" --memory $memory --allow recompute "$@" > "$tmp/run"
    for part in cache compute work; do
        [ "$(number $part "$tmp/run")" = "$(number $part "$tmp/fit")" ] ||
            fail "fit and run differ with ops again: $(cat "$tmp/fit" "$tmp/run")"
    done
    [ "$(grep -o '"text": .*"prompt_tokens"' "$tmp/run")" = "$(grep -o '"text": .*"prompt_tokens"' "$tmp/run-once")" ] ||
        fail "run: another text with ops again: $(cat "$tmp/run-once" "$tmp/run")"
else
    echo "skipped: no model is made (BERTH_MAKE_MODEL)"
fi

# types of the cache, in every command with this option
for part in "bench -p 8 -n 2 -r 1" explain "fit --memory 1G" plan "run -n 2" "map -o $tmp/cache.svg"; do
    expect 0 "" $part --cache-type Q4_0,bf16 $tales
    expect 2 "--cache-type 'q9' is neither a type such as f16 or q8_0 nor two types such as q8_0,f16" $part --cache-type q9 $tales
    expect 2 "--cache-type 'f16,' is neither a type" $part --cache-type f16, $tales
    expect 3 "the values of the cache cannot be q4_K: a head has 32 elements, which is not a multiple of its block of 256" $part --cache-type f16,q4_K $tales
    expect 3 "the keys of the cache cannot be i32: values of this type cannot be converted to f32" $part --cache-type i32 $tales
done
expect 0 "cache 544.00 KiB" run -n 2 --cache-type q8_0 $tales
expect 0 "cache 784.00 KiB" run -n 2 --cache-type q8_0,f16 $tales

# embed: one line per text, of length 1, reproducible
expect 0 "" embed $tales "a ship" "a ship" "the harbour"
[ "$(wc -l < "$tmp/out")" -eq 3 ] && [ "$(sort -u "$tmp/out" | wc -l)" -eq 2 ] || fail "embed: $(wc "$tmp/out")"
awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i * $i; if (s < 0.999 || s > 1.001) exit 1 }' "$tmp/out" || fail "embed: not of length 1"
printf 'a ship\n\nthe harbour\n' > "$tmp/texts"
expect 0 '"pooling": "last"' embed --json --pooling last -f "$tmp/texts" -m $tales
expect 2 "missing text" embed $tales
expect 2 "missing argument: MODEL" embed
expect 2 "--pooling 'x' is not one of: mean last" embed --pooling x $tales a
expect 3 "text 1: the text has 5 tokens, but 1 to 2 are allowed" embed -c 2 $tales "a ship"

# plan and map
expect 0 "proven optimal" plan $tales
expect 0 '"items": 53, "peak": 2755616, "bound": 2755616' plan --json --ctx 256 --batch 256 $tales
expect 1 "no: proven that no plan fits into" plan --capacity 1M $tales
expect 2 "--ctx 'x' is not an integer from 1 to 2147483647" plan --ctx x $tales
expect 3 "general.architecture" plan tests/fuzz/corpus/gguf/keys
expect 0 "" map -o "$tmp/map.svg" $tales
expect 0 "" run -n 1 --map "$tmp/map.html"
grep -q "cache_rows" "$tmp/map.html" || fail "run --map: no tensor in the page"

# Headers of large models, as sparse files without weights.
if [ -r "$sparse/make.sh" ]; then
    large=mixtral-8x7b
    if [ "${BERTH_SANITIZE:-}" = thread ]; then
        echo "left out: $large, whose file is larger than what the thread sanitizer leaves of the addresses"
        large=
    fi
    sh "$sparse/make.sh" "$tmp" llama-2-7b.gguf llama-3.1-8b.gguf mixtral-8x7b.gguf qwen2.5-7b.gguf qwen3-8b.gguf rwkv7-2.9b.gguf \
        qwen3-30b-a3b.gguf gemma-2-9b.gguf gemma-3-4b.gguf phi-3-mini.gguf gpt-oss-20b.gguf smollm3-3b.gguf olmoe-7b.gguf \
        command-r-35b.gguf gpt2-xl.gguf deepseek-v2-lite.gguf glm-4.5-air.gguf mamba2-2.7b.gguf deepseek-v3.gguf
    # `fit` measures ops to predict the speed, which takes long with a sanitizer. Then only two models are tested.
    skips_fit() { [ -n "${BERTH_SANITIZE:-}" ] && [ "$1" != qwen2.5-7b ] && [ "$1" != gpt2-xl ]; }
    for model in llama-2-7b llama-3.1-8b $large qwen2.5-7b qwen3-8b; do
        expect 0 "proven optimal" plan --ctx 4096 --batch 512 "$tmp/$model.gguf"
        skips_fit $model || expect 0 "context 8192" fit --memory 64G "$tmp/$model.gguf"
        expect 0 "nodes, 1 split, 0 copies" explain "$tmp/$model.gguf"
        expect 3 "the file has no tokenizer" run "$tmp/$model.gguf"
    done
    for part in plan explain run; do
        expect 3 "architecture 'rwkv7' is not supported" $part "$tmp/rwkv7-2.9b.gguf"
    done
    for model in gemma-2-9b gemma-3-4b phi-3-mini gpt-oss-20b smollm3-3b olmoe-7b command-r-35b gpt2-xl deepseek-v2-lite \
        mamba2-2.7b ${large:+qwen3-30b-a3b glm-4.5-air deepseek-v3}; do
        expect 0 "proven optimal" plan --ctx 1024 --batch 512 "$tmp/$model.gguf"
        skips_fit $model || expect 0 "context $([ $model = gpt2-xl ] && echo 1024 || echo 8192)" fit --memory 640G "$tmp/$model.gguf"
        expect 0 "" map --ctx 1024 -o "$tmp/map.svg" "$tmp/$model.gguf"
        expect 0 "nodes, 1 split, 0 copies" explain "$tmp/$model.gguf"
    done
    expect 3 "a context of 1025 is too long: the model has position embeddings for 1024 positions" plan --ctx 1025 "$tmp/gpt2-xl.gguf"
    # The context is limited by the model's positions, or by memory if that is smaller.
    expect 0 "context 1024, batch 1024" fit --memory 640G --max-ctx 4096 "$tmp/gpt2-xl.gguf"
    expect 0 "context  limited by the model: it has no more positions" fit --memory 640G --max-ctx 4096 "$tmp/gpt2-xl.gguf"
    expect 0 "context  limited by memory" fit --memory 1640M --max-ctx 4096 --allow batch "$tmp/gpt2-xl.gguf"
    [ "$(du -k "$tmp/llama-3.1-8b.gguf" | cut -f1)" -lt 1000 ] || fail "a hole was filled"
else
    echo "skipped: no $sparse"
fi

# The values alive at the peak, by name, and the memory of the model in addition to the plan.
expect 0 "1.50 MiB  27.2%  blk.0.ffn.act                SWIGLU" plan $tales
expect 0 "CPU: weights 3.33 MiB (mapped), cache 1.00 MiB, compute 5.51 MiB: 9.83 MiB" plan $tales
expect 0 '"memory": [{"device": "CPU", "weights": ' plan --json $tales
expect 0 '"alive": {"step": 26, "bytes": 5773344, "pieces": 8, "largest": [{"name": "blk.0.ffn.' plan --json $tales
# Options that lower the peak, with the bytes that a plan with them confirms.
expect 0 "  lower    -b 256 saves 2.75 MiB; --cache-type q8_0 saves 480.00 KiB" plan $tales
expect 0 '"lower": [{"option": "-b 256", "less": 2886656}, {"option": "--cache-type q8_0", "less": 491520}]' plan --json $tales
expect 0 "compute $(echo 5773344 2886656 | awk '{ printf "%.2f", ($1 - $2) / 1048576 }') MiB" plan -b 256 $tales
printf 'id,lower,upper,size\n0,0,2,64\n' > "$tmp/one.csv"
expect 0 '"lower": []' plan --json "$tmp/one.csv"
expect 0 "blk.3.attn.flash" plan -o - $tales
expect 0 "  layers 1 to 2: 2 x the same " explain $tales
expect 0 "  node 3 blk.0.attn.q_flat (MUL_MAT" explain $tales
! grep -q "blk[.][12][.]" "$tmp/out" || { echo "FAILED: explain: equal layers are printed twice"; n_bad=$((n_bad + 1)); }
expect 0 "blk.2.ffn.up (MUL_MAT" explain --layer 2 $tales
! grep -q "blk[.][013][.]" "$tmp/out" || { echo "FAILED: explain --layer 2: another layer is printed"; n_bad=$((n_bad + 1)); }
expect 1 "there is no layer 4: the model has 4, counted from 0" explain --layer 4 $tales
expect 2 "--layer 'x' is not an integer from 0" explain --layer x $tales
expect 0 "blk.2.attn.sum (ADD" explain --all $tales
! grep -q "node_[0-9]" "$tmp/out" || { echo "FAILED: explain: tensors without names: $(grep -m 1 "node_[0-9]" "$tmp/out")"; n_bad=$((n_bad + 1)); }

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
