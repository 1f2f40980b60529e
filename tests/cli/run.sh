#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh BERTH: `berth run`: texts, exit codes, other output files, a full disk. Runs in the root of the sources. The model in f16
# is in the data directory (BERTH_DATA, default ../shared).

. "$(dirname "$0")/expect.sh"
command=run
tales=tests/data/tales-3m-q8_0.gguf
f16=${BERTH_DATA:-../shared}/models/tales/tales-f16.gguf

# begins FILE TEXT: the text that a model generates at temperature 0
begins() {
    n=$((n + 1))
    text=$("$berth" run "$1" --temp 0 -p "Once upon a time" 2> "$tmp/err")
    case $text in
        "$2"*) ;;
        *)
            echo "FAILED: berth run $1: '$text' does not begin with '$2': $(cat "$tmp/err")"
            n_bad=$((n_bad + 1))
            ;;
    esac
}

expect 0 "Usage: berth run" --help
expect 2 "unknown option '--nonsense'" --nonsense
expect 2 "option '--temp' requires a value" --temp
expect 2 "--temp 'hot' is not a number from 0" --temp hot
for temp in nan inf -1 "" 1e7; do
    expect 2 "--temp '$temp' is not a number from 0 to 1e+06" --temp "$temp"
done
expect 2 "--top-p 'nan' is not a number from 0 to 1" --top-p nan
for threads in 0 1025 -1 many; do
    expect 2 "--threads '$threads' is not an integer from 1 to 1024" --threads $threads
done
expect 2 "--seed '9223372036854775808' is not an integer from 0" --seed 9223372036854775808
expect 2 "--top-p '2' is not a number from 0 to 1" --top-p 2
expect 2 "--ctx '0' is not an integer from 1" --ctx 0
expect 2 "--seed '-1' is not an integer from 0" --seed -1
expect 2 "unexpected argument 'c': run takes [MODEL [PROMPT]]" a b c
expect 3 "cannot be read: No such file" "$tmp/none"
head -c 3000 /dev/urandom > "$tmp/noise"
expect 3 "not a GGUF file" "$tmp/noise"
head -c 100000 $tales > "$tmp/cut"
expect 3 "but the file has 100000 bytes" "$tmp/cut"
expect 3 "not a model: key 'general.architecture' is missing" tests/fuzz/corpus/gguf/keys
expect 3 "unknown device 'abacus'" --device abacus
expect 3 "the prompt has 10 tokens, but the context has 4 positions; enlarge it with --ctx" --ctx 4 $tales
# A name with a control sequence for the terminal: expect checks the output for it.
{
    printf 'GGUF\003\0\0\0\0\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0\024\0\0\0\0\0\0\0general.architecture'
    printf '\010\0\0\0\006\0\0\0\0\0\0\0\033[31m\377'
} > "$tmp/red"
expect 3 "architecture '?[31m" "$tmp/red"
expect 3 "cannot be written" -n 2 --trace "$tmp/none/trace"
[ ! -s "$tmp/out" ] || {
    echo "FAILED: --trace: the name is refused only after the text"
    n_bad=$((n_bad + 1))
}
expect 3 "writing failed: No space left on device" -n 2 --trace /dev/full
expect 3 "writing failed: No space left on device" -n 2 --map /dev/full
cp $tales "$tmp/model"
expect 3 "this file is also an input" -n 2 --trace "$tmp/model" "$tmp/model"
expect 3 "this file is also an input" -n 2 --map "$tmp/model" "$tmp/model"
cmp -s $tales "$tmp/model" || {
    echo "FAILED: the model was overwritten"
    n_bad=$((n_bad + 1))
}

expect 0 "prompt: 10 tokens, " -n 3 $tales
expect 0 "generated: 3 tokens, " -n 3 --threads 64 --temp 1e-320 --top-p 0 --seed 9223372036854775807
expect 0 "prompt: 6 tokens" -n 3 -p "$(printf '\377\376 \300')" $tales # not UTF-8: each byte is a token
expect 0 "the context is full; prompt: 1 token" -c 1 -p ""
expect 3 "not a regular file" /dev/null
expect 0 "CPU: weights 3.33 MiB, cache 1.00 MiB" -n 3 $tales
expect 0 "Once upon a time there was" --echo --temp 0 -n 8

# A text of the model has a low perplexity, another text a high one; the second half of each context counts.
for i in 1 2 3 4 5 6 7 8; do "$berth" run -s $i -n 120 $tales 2> /dev/null; done > "$tmp/own.txt"
"$berth" perplexity --json -c 64 $tales "$tmp/own.txt" > "$tmp/own.json"
"$berth" perplexity --json -c 64 --chunks 4 $tales README.md > "$tmp/other.json"
own=$(sed 's/.*"perplexity": \([0-9]*\).*/\1/' "$tmp/own.json")
other=$(sed 's/.*"perplexity": \([0-9]*\).*/\1/' "$tmp/other.json")
[ "$own" -lt 3 ] && [ "$other" -gt 100 ] && grep -q '"tokens": 124, "chunks": 4' "$tmp/other.json" || {
    echo "FAILED: berth perplexity: $(cat "$tmp/own.json" "$tmp/other.json")"
    n_bad=$((n_bad + 1))
}
command=perplexity
expect 2 "missing argument: MODEL TEXT" $tales
expect 2 "half of the context has no token to predict" -c 3 $tales README.md
echo Short > "$tmp/short.txt"
expect 3 "tokens, but a context needs 64" -c 64 $tales "$tmp/short.txt"
command=run

# sampling options
expect 2 "--min-p '2' is not a number from 0 to 1" --min-p 2
expect 2 "--repeat-penalty '0' is not a number" --repeat-penalty 0
expect 2 "--mirostat 1 is not supported" --mirostat 1
expect 2 "--logit-bias '5' is not a token id" --logit-bias 5
expect 2 "--stop requires a text that is not empty" --stop ""
expect 2 "--grammar and --json-schema cannot be combined" --grammar a --json-schema b
expect 2 "--logprobs requires --json" --logprobs 2
expect 2 "--logprobs 'x' is not an integer from 0 to 1000" --json --logprobs x
printf 'root ::= " {" name ("," name){1,2} "}"\nname ::= [A-Z] [a-z]{2,5}\n' > "$tmp/names"
printf 'root ::= root "a"\n' > "$tmp/wrong"
expect 3 "$tmp/wrong: rule 'root' begins with itself" --grammar "$tmp/wrong"
for seed in 1 2 3; do
    "$berth" run --grammar "$tmp/names" -s $seed --temp 2 2> /dev/null | grep -Eqx ' [{][A-Z][a-z]{2,5}(,[A-Z][a-z]{2,5}){1,2}[}]' || {
        echo "FAILED: seed $seed: what is written is not of the grammar"
        n_bad=$((n_bad + 1))
    }
done
# stops TEXT OPTION...: the text that is generated at temperature 0
stops() {
    local written=$1
    shift
    expect 0 "generated: " --temp 0 -n 60 "$@" $tales
    [ "$(cat "$tmp/out")" = "$written" ] || {
        echo "FAILED: berth run $*: '$(cat "$tmp/out")' and not '$written'"
        n_bad=$((n_bad + 1))
    }
}
stops " there was a clever boy named Otis" --stop . --stop "not there"
stops " there was a clever boy named Otis. He" --stop " lived near" --stop lavender
expect 0 "generated: 12 tokens, " -s 1 -n 12 --mirostat 2 --mirostat-ent 3 --mirostat-lr 0.2
expect 0 "generated: 12 tokens, " -s 1 -n 12 --top-k 0 --typical 0.9 --min-p 0.05 --repeat-penalty 1.2 --frequency-penalty 0.1 --presence-penalty 0.1
expect 0 "" --echo -n 0 -p "Now"
[ "$(wc -l < "$tmp/out") $(cat "$tmp/out")" = "1 Now" ] || {
    echo "FAILED: --echo -n 0: no whole line: $(cat "$tmp/out")"
    n_bad=$((n_bad + 1))
}
expect 0 '"tokens": 5' --json -n 5 --seed 3
expect 0 '"text": " there was' --json -n 5 --temp 0 --threads 1
expect 0 '"tokens": 0' --json -n 0
expect 0 "the context is full; prompt: 10 tokens" -c 20 --temp 0 $tales
expect 0 "prompt: 1 token, " -n 1 -p ""
expect 0 "seed 42" -n 4 -s 42 --batch 3 --device CPU
# A share of every layer on each of two and three devices gives the same text.
tale=$("$berth" run -n 40 --temp 0 2>/dev/null)
for parts in CPU,CPU CPU,CPU,CPU; do
    expect 0 "Meta($parts): weights" -n 40 --temp 0 --split tensor --device $parts
    [ "$(cat "$tmp/out")" = "$tale" ] || {
        echo "FAILED: $parts generate another tale: $(cat "$tmp/out")"
        n_bad=$((n_bad + 1))
    }
done
expect 3 "splitting tensors requires two or more devices, but 1 is given" --split tensor --device CPU
expect 3 "unknown device 'abacus'" --split tensor --device CPU,abacus
expect 2 "--split 'rows' is not one of: layer tensor auto" --split rows
# A prompt cache gives the same text, also with a longer and a shorter prompt.
keep() { # KEPT PROMPT
    expect 0 "" -n 8 --temp 0 -t 1 -p "$2" $tales
    cp "$tmp/out" "$tmp/fresh"
    expect 0 "" -n 8 --temp 0 -t 1 -p "$2" --prompt-cache "$tmp/kept" $tales
    cmp "$tmp/out" "$tmp/fresh" || n_bad=$((n_bad + 1))
    if [ -n "$1" ] && ! grep -q "$1 from the prompt cache" "$tmp/err"; then
        echo "FAILED: --prompt-cache: no '$1 from the prompt cache' in: $(cat "$tmp/err")"
        n_bad=$((n_bad + 1))
    fi
}
keep "" "Once upon a time there was a boy"
keep "13" "Once upon a time there was a boy"
keep "14" "Once upon a time there was a boy and a girl"
keep "" "Once upon a time there"
expect 3 "the file was saved with another model" -n 1 --cache-type q8_0 --prompt-cache "$tmp/kept" -p "Once upon a time there" $tales
# Every parameter that changes a value changes the fingerprint of the model; its name does not. A file of another version is
# replaced.
for key in llama.rope.freq_base=20000.0 llama.attention.layer_norm_rms_epsilon=0.001 llama.rope.dimension_count=16 llama.rope.scaling.factor=2.0 \
    llama.rope.scale_linear=4.0 llama.context_length=128; do
    "$berth" gguf set $tales $key -o "$tmp/other.gguf" > /dev/null
    expect 3 "the file was saved with another model" -n 1 -c 256 --prompt-cache "$tmp/kept" -p "Once upon a time there" "$tmp/other.gguf"
done
"$berth" gguf set $tales general.name=Other tokenizer.ggml.add_eos_token=true -o "$tmp/other.gguf" > /dev/null
expect 0 "from the prompt cache" -n 1 --prompt-cache "$tmp/kept" -p "Once upon a time there" "$tmp/other.gguf"
{ printf BERTHPC2; tail -c +9 "$tmp/kept"; } > "$tmp/old"
expect 0 "the file has format 'BERTHPC2' of another version of Berth" -n 1 --prompt-cache "$tmp/old" -p "Once upon a time there" $tales
expect 0 "from the prompt cache" -n 1 --prompt-cache "$tmp/old" -p "Once upon a time there" $tales
head -c 200 "$tmp/kept" > "$tmp/short"
expect 3 "the file is truncated" -n 1 --prompt-cache "$tmp/short" -p "Once upon a time there was" $tales
echo none > "$tmp/short"
expect 3 "not a prompt cache" -n 1 --prompt-cache "$tmp/short"
expect 0 "" -n 4 --trace "$tmp/trace.json" --map "$tmp/map.json"
command=
expect 0 '"proven": true' plan --json "$tmp/map.json"
command=run
grep -q '"traceEvents"' "$tmp/trace.json" || {
    echo "FAILED: no timeline in --trace"
    n_bad=$((n_bad + 1))
}

# Prompts from other sources: a pipe, a file, and standard input by name; the name of a file is not a prompt.
from() { # TEXT INPUT ARGS...: the echoed text
    n=$((n + 1))
    text=$1 input=$2
    shift 2
    got=$(printf '%s\n' "$input" | "$berth" run --echo -n 0 "$@" $tales 2> "$tmp/err")
    if [ "$got" != "$text" ]; then
        echo "FAILED: berth run $*: the prompt is '$got', not '$text': $(cat "$tmp/err")"
        n_bad=$((n_bad + 1))
    fi
}
printf 'Of a file\n' > "$tmp/prompt"
from "From a pipe" "From a pipe"
from "From a pipe" "From a pipe" -p -
from "From a pipe" "From a pipe" -f -
from "Given" "From a pipe" -p Given
from "Of a file" "From a pipe" -f "$tmp/prompt"
expect 0 "Once upon a time" --echo -n 0 $tales # empty standard input
expect 2 "--prompt and --file cannot be combined" -p a -f "$tmp/prompt"
expect 3 "none: cannot be read: No such file" -f "$tmp/none"

# A context longer than that of training, and a missing folder for captured graphs, cause a warning only.
expect 0 "warning: the context of 100000 positions exceeds the 256 positions of training" -n 1 -c 100000 $tales
expect 0 "generated: 1 token; seed " -n 1 -c 256 $tales
! grep -q warning "$tmp/err" || { echo "FAILED: a warning without need: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
command=
expect 0 "warning: the context of 100000 positions" plan --ctx 100000 $tales
# A link in that folder, which another user may have created, is not followed.
mkdir "$tmp/graphs"
BERTH_CAPTURE="$tmp/graphs" expect 0 "" run -n 1 $tales
for each in "$tmp"/graphs/*.ggraph; do
    ln -sf ../victim "$each"
done
BERTH_CAPTURE="$tmp/graphs" expect 0 "warning: BERTH_CAPTURE: cannot write a captured graph to $tmp/graphs: File exists" run -n 1 $tales
if [ -e "$tmp/victim" ] || ls "$tmp/graphs" | grep -q part; then
    echo "FAILED: BERTH_CAPTURE follows links, or leaves parts: $(ls "$tmp/graphs")"
    n_bad=$((n_bad + 1))
fi
BERTH_CAPTURE="$tmp/nowhere" expect 0 "warning: BERTH_CAPTURE: cannot write a captured graph to $tmp/nowhere: No such file" run -n 1 $tales
command=run

# The same seed gives the same tale, whatever the batch size.
"$berth" run -s 7 -n 60 > "$tmp/one" 2> /dev/null
"$berth" run -s 7 -n 60 -b 4 -t 1 > "$tmp/two" 2> /dev/null
cmp -s "$tmp/one" "$tmp/two" || {
    echo "FAILED: another tale from the same seed"
    n_bad=$((n_bad + 1))
}

# Names and places in tales depend on small differences between kernels; the structure of a tale does not.
for model in $tales models/tales-q8_0.gguf; do
    begins $model " there was a "
    case $text in
        *" named "*" lived near the "*" said "*.) ;;
        *)
            echo "FAILED: berth run $model: this is not a tale: $text"
            n_bad=$((n_bad + 1))
            ;;
    esac
done
if [ -r "$f16" ]; then
    begins "$f16" " there was a clever boy named Emil. He lived near the island. The sky was pink and gold. One evening, Emil had to bring a blue kite, a lantern and a silver key to the river mouth."
else
    echo "skipped: no $f16"
fi

"$berth" run -n 5 > /dev/full 2> "$tmp/err"
if [ $? -ne 3 ]; then
    echo "FAILED: a full standard output is not a failure"
    n_bad=$((n_bad + 1))
fi

# A closed output pipe ends the program by the signal, or with a message if the signal is ignored.
(trap '' PIPE; "$berth" run -n 200 2> "$tmp/err"; echo $? > "$tmp/code") | head -c 1 > /dev/null
if [ "$(cat "$tmp/code")" -ne 3 ] || ! grep -q "standard output: writing failed: Broken pipe" "$tmp/err"; then
    echo "FAILED: a closed pipe: exit code $(cat "$tmp/code"): $(cat "$tmp/err")"
    n_bad=$((n_bad + 1))
fi

# A file that is named like libllama but cannot be loaded is reported with the reason. A pipe does not block the search, and a
# truncated file does not reach the linker.
mkdir "$tmp/pipe" "$tmp/broken"
mkfifo "$tmp/pipe/libllama.v0.5.0.so"
head -c 20000 "$(dirname "$berth")/../lib/libggml-base.so" > "$tmp/broken/libllama.v0.5.0.so" 2> /dev/null ||
    head -c 20000 "$berth" > "$tmp/broken/libllama.v0.5.0.so"
BERTH_LLAMA=$tmp/pipe expect 3 "pipe/libllama.v0.5.0.so cannot be loaded: not a regular file" --llama -n 1 $tales
BERTH_LLAMA=$tmp/broken expect 3 "broken/libllama.v0.5.0.so cannot be loaded: truncated" --llama -n 1 $tales
BERTH_LLAMA= LD_LIBRARY_PATH=$tmp/pipe:$tmp/broken HOME=/ expect 3 "pipe/libllama.v0.5.0.so cannot be loaded" --llama -n 1 $tales

# A prompt after the model; -n -1 as in llama.cpp; --quiet.
expect 0 "" $tales "Once upon a time" --temp 0 -n 8 --echo
cp "$tmp/out" "$tmp/argument"
expect 0 "" -m $tales --temp 0 -n 8 --echo -p "Once upon a time"
cmp -s "$tmp/out" "$tmp/argument" || { echo "FAILED: run MODEL PROMPT: $(cat "$tmp/argument")"; n_bad=$((n_bad + 1)); }
expect 0 "" -m $tales "Once upon a time" --temp 0 -n 8 --echo
cmp -s "$tmp/out" "$tmp/argument" || { echo "FAILED: run -m MODEL PROMPT: $(cat "$tmp/out")"; n_bad=$((n_bad + 1)); }
expect 2 "unexpected argument 'b': run takes [MODEL [PROMPT]]" $tales a b
expect 2 "unexpected argument 'a': the prompt is given by --prompt" $tales a -p b
expect 2 "unexpected argument 'a': the prompt is given by --file" $tales a -f "$tmp/prompt"
expect 0 "" $tales -n -1 -c 40 --temp 0
grep -q "the context is full; prompt:" "$tmp/err" || { echo "FAILED: run -n -1: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
expect 2 "--predict '-2' is not an integer from -1" $tales -n -2
expect 0 "" $tales -n 2 --quiet -c 512
[ -s "$tmp/out" ] && [ ! -s "$tmp/err" ] || { echo "FAILED: run --quiet: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
expect 3 "cannot be read" -q "$tmp/nowhere.gguf" # errors are still printed
expect 3 "unknown device 'abacus'; available: CPU" --device abacus
expect 3 "unknown device 'abacus'; available: CPU" --split tensor --device CPU,abacus

# The changes that --memory makes are reported.
expect 0 "warning: to stay within --memory: a context of " $tales --memory 4M -n 1
grep -q "positions instead of 256, a batch of [0-9]* tokens instead of 256, a cache of q4_0 instead of f16" "$tmp/err" ||
    { echo "FAILED: run --memory 4M: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
expect 0 '"cache_type": "q4_0"' $tales --memory 4M -n 1 --json
expect 0 "" $tales --memory 1G -n 1
! grep -q "warning" "$tmp/err" || { echo "FAILED: run --memory 1G: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }

# After Ctrl-C the statistics are printed, and the exit code is 130.
head -c 100000 /dev/zero | tr '\0' x > "$tmp/long"
"$berth" run --echo -c 120000 -b 64 -p "$(cat "$tmp/long")" > "$tmp/began" 2> "$tmp/err" &
pid=$!
tries=0
while [ ! -s "$tmp/began" ] && [ $tries -lt 300 ]; do # the prompt is printed when it has started
    sleep 0.2
    tries=$((tries + 1))
done
kill -INT $pid 2> /dev/null
wait $pid
got=$?
if [ $got -ne 130 ] || ! grep -q "stopped; prompt:" "$tmp/err"; then
    echo "FAILED: interrupted: exit code $got: $(cat "$tmp/err")"
    n_bad=$((n_bad + 1))
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
