// SPDX-License-Identifier: MIT
// probe.c: runs one query with the libllama of a folder on one model. The folder determines which ggml is used. The results of
// two folders are compared by `compare` or by client.sh.
//
//     probe FOLDER logits MODEL OUT [N WORD...] writes the logits of N positions: half as a prompt, half one by one.
//                                              Words: embeddings (instead of logits), exact (keys and values in f32), unfused
//                                              (without flash attention), q8_0 (keys and values in q8_0), ubatch (of 16),
//                                              lora=FILE (with this adapter)
//     probe FOLDER memory MODEL [CTX UBATCH]   prints the bytes of the compute buffers that a context reserves
//     probe FOLDER speed MODEL PP TG [THREADS [UBATCH [CTX]]]  prints tokens per second of a prompt and of single tokens, by
//                                              wall clock and by CPU time; the best of three runs
//     probe FOLDER batch MODEL N PP TG [THREADS WORD...]  N sequences at once: a prompt of PP tokens each, then TG steps of one
//                                              token of each sequence; prints tokens per second of the prompts and of the steps, as
//                                              speed does. Words: unified (one cache for all sequences; otherwise one cache each),
//                                              exact, unfused (as for logits), runs=N (instead of three), first=N (the first
//                                              sequence is sequence N), tokens (prints the most likely tokens of each sequence
//                                              instead of the speed), bits (as tokens, and a checksum of all logits)
//     probe FOLDER cycles MODEL N              creates, uses and frees N contexts: prints resident memory and file descriptors
//     probe FOLDER quantize MODEL OUT FTYPE [THREADS]  quantises with libllama, in the formats of the folder's ggml
//     probe FOLDER tokens MODEL TEXT           prints the number of tokens of the text, and the text that they give
//     probe FOLDER text MODEL PROMPT N         prints N tokens after the prompt, each the most likely one
//     probe FOLDER errors MODEL WHICH          makes one mistake: exit code 3 if it is refused
//     probe compare A B [rms]                  prints the largest difference / the largest value of A; with rms, the RMS of the
//                                              differences / the RMS of A
//
// PROBE_HOST_EXPERTS=N keeps the experts of the first N layers in memory of the host. PROBE_GPU_LAYERS=N keeps all but the last N layers
// there. PROBE_EACH=1 makes speed print a line for every run. PROBE_PARTS=N splits every tensor over N devices, each of which is the CPU. PROBE_MAPPED=1 uses all weights where they are mapped; otherwise ggml's CPU library copies some of them to
// other layouts.

#include "llama_load.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct {
    // MiB of compute buffers. The context logs `reserved` at its start (two decimals), and `used` at its end (four decimals).
    double reserved, used;
    bool loud;
} seen;

static double size_after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    return at != NULL ? strtod(at + strlen(what), NULL) : 0;
}

static void on_log(int level, const char *text, void *user) {
    (void) user;
    seen.reserved += size_after(text, "compute buffer size = ");
    seen.used += size_after(text, "compute buffer size is ");
    if (seen.loud || level == 4) { // level 4: error
        fputs(text, stderr);
    }
}

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static int fail(const char *what) {
    fprintf(stderr, "probe: %s\n", what);
    return 3;
}

static struct llama_model *model_load(const char *path) {
    struct llama_model_params params = llama_model_default_params();
    if (getenv("PROBE_EMPTY") != NULL) { // loads only the dimensions, not the weights
        llama_no_alloc(&params, llama_release);
        params.load_mode = 0;
    }
    static char patterns[256][32];
    static struct llama_tensor_override overrides[257];
    const char *n_host = getenv("PROBE_HOST_EXPERTS");
    for (int i = 0; n_host != NULL && i < atoi(n_host) && i < 256; i++) {
        snprintf(patterns[i], sizeof patterns[i], "blk\\.%d\\.ffn_.*_exps", i);
        overrides[i] = (struct llama_tensor_override){patterns[i], llama_device_buft(llama_device(0))};
        params.overrides = overrides;
    }
    if (getenv("PROBE_GPU_LAYERS") != NULL) {
        params.n_gpu_layers = atoi(getenv("PROBE_GPU_LAYERS"));
    }
    if (getenv("PROBE_MAPPED") != NULL) {
        llama_no_repack(&params);
    }
    void *devices[17] = {NULL};
    if (getenv("PROBE_PARTS") != NULL) { // splits tensors over N devices, each of which is the CPU
        for (int i = 0; i < 16 && i < atoi(getenv("PROBE_PARTS")); i++) {
            devices[i] = llama_device(0);
        }
        params.devices = devices;
        params.split_mode = 3;
        params.n_gpu_layers = 999;
    }
    return llama_model_load_from_file(path, params);
}

static struct llama_context_params context_params(uint32_t n_ctx, uint32_t n_ubatch, int n_threads) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_ubatch = n_ubatch;
    params.n_threads = params.n_threads_batch = n_threads;
    return params;
}

// Token i of a fixed pseudo-random text.
static int32_t text_token(int32_t i, int32_t n_vocab) {
    const uint32_t mix = (uint32_t) (i + 1) * 2654435761u;
    return (int32_t) ((mix >> 8) % (uint32_t) n_vocab);
}

// The fixed text, at the same positions.
static void batch_fill(struct llama_batch *batch, int32_t first, int32_t n, int32_t n_vocab) {
    batch->n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        batch->token[i] = text_token(first + i, n_vocab);
        batch->pos[i] = first + i;
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = 0;
        batch->logits[i] = 1;
    }
}

// ---- logits ----

struct run {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
    int32_t n_vocab;
    bool is_embedding; // the result is one vector per token instead of logits
    FILE *out;
};

static bool write_rows(struct run *run) {
    const size_t n = (size_t) (run->is_embedding ? llama_model_n_embd(run->model) : run->n_vocab);
    bool ok = true;
    for (int32_t i = 0; ok && i < run->batch.n_tokens; i++) {
        const float *row = run->is_embedding ? llama_get_embeddings_ith(run->ctx, i) : llama_get_logits_ith(run->ctx, i);
        ok = row != NULL && fwrite(row, sizeof *row, n, run->out) == n;
    }
    return ok;
}

static bool evaluate(struct run *run, int32_t first, int32_t n) {
    batch_fill(&run->batch, first, n, run->n_vocab);
    return llama_decode(run->ctx, run->batch) == 0 && write_rows(run);
}

static bool logits_run(struct run *run, int32_t n) {
    if (run->is_embedding) {
        return evaluate(run, 0, n);
    }
    if (llama_model_has_encoder(run->model)) {
        batch_fill(&run->batch, 0, n, run->n_vocab);
        if (llama_encode(run->ctx, run->batch) != 0) {
            return false;
        }
    }
    bool ok = evaluate(run, 0, n / 2);
    for (int32_t i = n / 2; ok && i < n; i++) {
        ok = evaluate(run, i, 1);
    }
    return ok;
}

static bool has_word(int n_args, char **args, const char *word) {
    for (int i = 0; i < n_args; i++) {
        if (strcmp(args[i], word) == 0) {
            return true;
        }
    }
    return false;
}

// Returns the number after `name`, such as "runs=".
static int32_t word_number(int n_args, char **args, const char *name, int32_t otherwise) {
    for (int i = 0; i < n_args; i++) {
        if (strncmp(args[i], name, strlen(name)) == 0) {
            return atoi(args[i] + strlen(name));
        }
    }
    return otherwise;
}

static void params_by_words(struct llama_context_params *params, int n_args, char **args) {
    if (has_word(n_args, args, "exact")) { // no intermediate rounding
        params->type_k = params->type_v = 0;
    }
    if (has_word(n_args, args, "exact") || has_word(n_args, args, "unfused")) {
        params->flash_attn = 0;
    }
}

static bool adapter_set(struct run *run, int n_args, char **args) {
    for (int i = 0; i < n_args; i++) {
        if (strncmp(args[i], "lora=", 5) == 0) {
            float scale = 1;
            struct llama_adapter *adapter = llama_adapter_lora_init(run->model, args[i] + 5); // freed with the model
            return adapter != NULL && llama_set_adapters_lora(run->ctx, &adapter, 1, &scale) == 0;
        }
    }
    return true;
}

static int cmd_logits(struct llama_model *model, int n_args, char **args) {
    const int32_t n = n_args > 1 ? atoi(args[1]) : 100;
    struct run run = {.model = model, .n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model))};
    struct llama_context_params params = context_params(512, 512, 1);
    run.is_embedding = has_word(n_args, args, "embeddings");
    if (run.is_embedding) { // no pooling: one vector per token
        params.embeddings = true;
        params.pooling_type = 0;
    }
    if (has_word(n_args, args, "q8_0")) {
        params.type_k = params.type_v = 8;
    }
    params_by_words(&params, n_args, args);
    if (has_word(n_args, args, "ubatch")) {
        params.n_ubatch = 16;
    }
    run.ctx = llama_init_from_model(model, params);
    if (run.ctx == NULL) {
        return fail("cannot create a context");
    }
    if (!adapter_set(&run, n_args, args)) {
        return fail("cannot load the adapter");
    }
    run.batch = llama_batch_init(n, 0, 1);
    run.out = fopen(args[0], "wb");
    bool ok = run.out != NULL && logits_run(&run, n);
    ok = run.out != NULL && fclose(run.out) == 0 && ok;
    llama_batch_free(run.batch);
    llama_free(run.ctx);
    return ok ? 0 : fail("the evaluation failed");
}

static int cmd_compare(const char *path_a, const char *path_b, bool is_rms) {
    FILE *a = fopen(path_a, "rb"), *b = fopen(path_b, "rb");
    float x, y, largest = 0, difference = 0;
    double squares = 0, difference_squares = 0;
    size_t n = 0, n_not_finite = 0;
    while (a != NULL && b != NULL && fread(&x, sizeof x, 1, a) == 1 && fread(&y, sizeof y, 1, b) == 1) {
        n_not_finite += !isfinite(x) || !isfinite(y);
        largest = fmaxf(largest, fabsf(x));
        difference = fmaxf(difference, fabsf(x - y));
        squares += (double) x * x;
        difference_squares += (double) (x - y) * (x - y);
        n++;
    }
    const bool same_length = a != NULL && b != NULL && feof(a) && fread(&y, sizeof y, 1, b) == 0;
    if (!same_length || n == 0 || n_not_finite > 0 || largest == 0) {
        printf("%s and %s cannot be compared: %zu values, %zu not finite, largest %g%s\n", path_a, path_b, n, n_not_finite,
            largest, same_length ? "" : ", the lengths differ");
        return 1;
    }
    printf("%.2e\n", is_rms ? sqrt(difference_squares / squares) : difference / largest);
    return 0;
}

// ---- memory, speed ----

static int cmd_memory(struct llama_model *model, int n_args, char **args) {
    const uint32_t n_ctx = n_args > 0 ? (uint32_t) atoi(args[0]) : 512, n_ubatch = n_args > 1 ? (uint32_t) atoi(args[1]) : 512;
    struct llama_context_params params = context_params(n_ctx, n_ubatch, 1);
    struct llama_context *ctx = llama_init_from_model(model, params);
    if (ctx == NULL) {
        return fail("cannot create a context");
    }
    llama_free(ctx); // logs the exact sizes
    printf("%.4f\n", seen.used > 0 ? seen.used : seen.reserved);
    return 0;
}

// The shortest times so far for a prompt and for the tokens after it.
struct best {
    clockid_t clock;
    double start, prompt, decode;
};

static void best_start(struct best *best) {
    best->start = now(best->clock);
}

static void best_note(struct best *best, double *part) {
    const double t = now(best->clock);
    *part = fmin(*part, t - best->start);
    best->start = t;
}

static void best_print(const struct best *best, int32_t n_prompt, int32_t n_decode) {
    printf("%.2f %.2f %.2f %.2f\n", n_prompt / best[0].prompt, n_decode / best[0].decode, n_prompt / best[1].prompt,
        n_decode / best[1].decode);
}

static int cmd_speed(struct llama_model *model, int n_args, char **args) {
    const int32_t n_pp = atoi(args[0]), n_tg = atoi(args[1]);
    const int n_threads = n_args > 2 ? atoi(args[2]) : 1;
    const uint32_t n_ubatch = n_args > 3 ? (uint32_t) atoi(args[3]) : 512;
    const uint32_t n_ctx = n_args > 4 ? (uint32_t) atoi(args[4]) : (uint32_t) (n_pp + n_tg + 8);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context *ctx = llama_init_from_model(model, context_params(n_ctx, n_ubatch, n_threads));
    if (ctx == NULL) {
        return fail("cannot create a context");
    }
    struct llama_batch batch = llama_batch_init(n_pp, 0, 1);
    struct best best[] = {{CLOCK_MONOTONIC, 0, INFINITY, INFINITY}, {CLOCK_PROCESS_CPUTIME_ID, 0, INFINITY, INFINITY}};
    bool ok = true;
    for (int i = 0; ok && i < 3; i++) {
        if (getenv("PROBE_EACH") != NULL) {
            best[0].prompt = best[0].decode = best[1].prompt = best[1].decode = INFINITY;
        }
        llama_memory_clear(llama_get_memory(ctx), true);
        best_start(&best[0]);
        best_start(&best[1]);
        batch_fill(&batch, 0, n_pp, n_vocab);
        memset(batch.logits, 0, (size_t) n_pp - 1); // a prompt requires only the last logits
        ok = llama_decode(ctx, batch) == 0;
        llama_synchronize(ctx);
        best_note(&best[0], &best[0].prompt);
        best_note(&best[1], &best[1].prompt);
        for (int32_t k = 0; ok && k < n_tg; k++) {
            batch_fill(&batch, n_pp + k, 1, n_vocab);
            ok = llama_decode(ctx, batch) == 0;
            llama_synchronize(ctx);
        }
        best_note(&best[0], &best[0].decode);
        best_note(&best[1], &best[1].decode);
        if (ok && (i == 2 || getenv("PROBE_EACH") != NULL)) {
            best_print(best, n_pp, n_tg);
        }
    }
    llama_batch_free(batch);
    llama_free(ctx);
    return ok ? 0 : fail("the evaluation failed");
}

// ---- batch ----

#define TEXT_STEP 100000 // tokens between the texts of two sequences
#define CACHE_STEP 256   // libllama rounds the cache of a sequence up to a multiple of 256 tokens

static int32_t likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

static int32_t cache_tokens(int32_t n) {
    return (n + CACHE_STEP - 1) / CACHE_STEP * CACHE_STEP;
}

struct sequences {
    struct llama_context *ctx;
    struct llama_batch batch;
    int32_t n, n_vocab;
    int32_t first;   // sequence i of the batch has the text of sequence first + i
    bool is_greedy;  // each token is the most likely one; otherwise, tokens are those of the fixed text
    int32_t *tokens; // [n][TG]
    uint64_t *sums;  // [n] checksum of the logits of each sequence
};

static void sequences_add(struct sequences *q, int32_t seq, int32_t pos, int32_t token, bool has_logits) {
    const int32_t i = q->batch.n_tokens++;
    q->batch.token[i] = token;
    q->batch.pos[i] = pos;
    q->batch.n_seq_id[i] = 1;
    q->batch.seq_id[i][0] = seq;
    q->batch.logits[i] = has_logits;
}

static bool sequences_prompt(struct sequences *q, int32_t n_pp) {
    q->batch.n_tokens = 0;
    for (int32_t seq = 0; seq < q->n; seq++) {
        for (int32_t i = 0; i < n_pp; i++) {
            sequences_add(q, seq, i, text_token((q->first + seq) * TEXT_STEP + i, q->n_vocab), i == n_pp - 1);
        }
    }
    return llama_decode(q->ctx, q->batch) == 0;
}

// Takes the logits of sequence seq, which are those of token i of the last batch, and returns the most likely token.
static int32_t sequences_choose(struct sequences *q, int32_t seq, int32_t i) {
    const float *logits = llama_get_logits_ith(q->ctx, i);
    if (logits == NULL) {
        return 0;
    }
    for (int32_t k = 0; k < q->n_vocab; k++) { // FNV-1a over words
        uint32_t bits;
        memcpy(&bits, &logits[k], sizeof bits);
        q->sums[seq] = (q->sums[seq] ^ bits) * 1099511628211u;
    }
    return likeliest(logits, q->n_vocab);
}

static bool sequences_step(struct sequences *q, int32_t n_pp, int32_t n_tg, int32_t step) {
    for (int32_t seq = 0; q->is_greedy && seq < q->n; seq++) {
        q->tokens[seq * n_tg + step] = sequences_choose(q, seq, step == 0 ? (seq + 1) * n_pp - 1 : seq);
    }
    q->batch.n_tokens = 0;
    for (int32_t seq = 0; seq < q->n; seq++) {
        const int32_t fixed = text_token((q->first + seq) * TEXT_STEP + n_pp + step, q->n_vocab);
        sequences_add(q, seq, n_pp + step, q->is_greedy ? q->tokens[seq * n_tg + step] : fixed, true);
    }
    return llama_decode(q->ctx, q->batch) == 0;
}

static void sequences_print(const struct sequences *q, int32_t n_tg, bool has_sums) {
    for (int32_t seq = 0; seq < q->n; seq++) {
        for (int32_t i = 0; i < n_tg; i++) {
            printf(i + 1 < n_tg ? "%d " : "%d", q->tokens[seq * n_tg + i]);
        }
        if (has_sums) {
            printf(" %016llx", (unsigned long long) q->sums[seq]);
        }
        printf("\n");
    }
}

static int cmd_batch(struct llama_model *model, int n_args, char **args) {
    const int32_t n = atoi(args[0]), n_pp = atoi(args[1]), n_tg = atoi(args[2]);
    const int n_threads = n_args > 3 ? atoi(args[3]) : 1, n_runs = word_number(n_args, args, "runs=", 3);
    const bool has_sums = has_word(n_args, args, "bits");
    if (n < 1 || n_pp < 1 || n_tg < 1 || n_threads < 1 || n_runs < 1) {
        return fail("batch requires positive numbers");
    }
    struct llama_context_params params = context_params((uint32_t) (n * cache_tokens(n_pp + n_tg)), 512, n_threads);
    params.n_seq_max = (uint32_t) n;
    params.kv_unified = has_word(n_args, args, "unified");
    params_by_words(&params, n_args, args);
    struct sequences q = {.ctx = llama_init_from_model(model, params),
        .n = n,
        .n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)),
        .first = word_number(n_args, args, "first=", 0),
        .is_greedy = has_sums || has_word(n_args, args, "tokens")};
    if (q.ctx == NULL) {
        return fail("cannot create a context");
    }
    q.batch = llama_batch_init(n * n_pp, 0, 1);
    q.tokens = calloc((size_t) (n * n_tg), sizeof *q.tokens);
    q.sums = calloc((size_t) n, sizeof *q.sums);
    struct best best[] = {{CLOCK_MONOTONIC, 0, INFINITY, INFINITY}, {CLOCK_PROCESS_CPUTIME_ID, 0, INFINITY, INFINITY}};
    bool ok = q.tokens != NULL && q.sums != NULL;
    for (int i = 0; ok && i < (q.is_greedy ? 1 : n_runs); i++) {
        llama_memory_clear(llama_get_memory(q.ctx), true);
        best_start(&best[0]);
        best_start(&best[1]);
        ok = sequences_prompt(&q, n_pp);
        llama_synchronize(q.ctx);
        best_note(&best[0], &best[0].prompt);
        best_note(&best[1], &best[1].prompt);
        for (int32_t step = 0; ok && step < n_tg; step++) {
            ok = sequences_step(&q, n_pp, n_tg, step);
            llama_synchronize(q.ctx);
        }
        best_note(&best[0], &best[0].decode);
        best_note(&best[1], &best[1].decode);
    }
    if (ok && q.is_greedy) {
        sequences_print(&q, n_tg, has_sums);
    } else if (ok) {
        best_print(best, n * n_pp, n * n_tg);
    }
    free(q.tokens);
    free(q.sums);
    llama_batch_free(q.batch);
    llama_free(q.ctx);
    return ok ? 0 : fail("the evaluation failed");
}

// ---- cycles ----

// Counts only anonymous memory, because the kernel decides which pages of a library file are resident.
static long resident_kib(void) {
    char line[128];
    long resident = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        sscanf(line, "RssAnon: %ld", &resident);
    }
    if (f != NULL) {
        fclose(f);
    }
    return resident;
}

static int n_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

// Compares the maxima of the first and the second half of the cycles, because caches and arenas grow in the first half.
static int cmd_cycles(struct llama_model *model, int n_args, char **args) {
    const int n = n_args > 0 ? atoi(args[0]) : 1000;
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_batch batch = llama_batch_init(16, 0, 1);
    long max_kib[2] = {0, 0};
    int files[2] = {0, 0};
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        struct llama_context *ctx = llama_init_from_model(model, context_params(256, 64, 2));
        batch_fill(&batch, 0, 16, n_vocab);
        ok = ctx != NULL && llama_decode(ctx, batch) == 0;
        batch_fill(&batch, 16, 1, n_vocab);
        ok = ok && llama_decode(ctx, batch) == 0;
        llama_free(ctx);
        const int half = i >= n / 2;
        const long resident = resident_kib();
        max_kib[half] = resident > max_kib[half] ? resident : max_kib[half];
        files[half] = n_files();
    }
    llama_batch_free(batch);
    printf("at most %ld KiB resident in the first half of %d cycles, %ld KiB in the second; open files: %d and %d\n", max_kib[0],
        n, max_kib[1], files[0], files[1]);
    return ok && max_kib[0] > 0 && max_kib[1] - max_kib[0] < 2048 && files[0] == files[1]
               ? 0
               : fail("memory or open files grow from cycle to cycle");
}

// ---- errors ----

// Mistakes of a caller: in the parameters of a context, or in the batch. client.sh prints the trailing comments as names.
static const struct mistake {
    const char *name;
    uint32_t n_ctx, n_ubatch, n_seq_max; // 0: the default
    int32_t n_tokens, token, pos, seq_id, type_v;
    bool no_ubatch;
} mistakes[] = {
    {"ctx", .n_ctx = 0x7FFFFF00},  // context of 2^31 tokens
    {"batch", .n_tokens = 600},    // batch beyond the limit
    {"token", .token = 1 << 20},   // token beyond the vocabulary
    {"position", .pos = 100},      // position that leaves a gap
    {"sequence", .seq_id = 9},     // sequence beyond the limit
    {"ubatch", .no_ubatch = true}, // micro-batch of 0 tokens
    {"type", .type_v = 2},         // quantised values without flash attention
    {"seqs", .n_seq_max = 1000},   // 1000 sequences
};

static int mistake_run(struct llama_model *model, const struct mistake *w) {
    struct llama_context_params params = context_params(512, 512, 1);
    if (w->n_ctx != 0) {
        params.n_ctx = w->n_ctx;
    }
    params.n_ubatch = w->no_ubatch ? 0 : params.n_ubatch;
    params.n_seq_max = w->n_seq_max != 0 ? w->n_seq_max : 1;
    if (w->type_v != 0) {
        params.type_v = w->type_v;
        params.flash_attn = 0;
    }
    struct llama_context *ctx = llama_init_from_model(model, params);
    if (ctx == NULL) {
        return fail("cannot create a context");
    }
    const int32_t n = w->n_tokens != 0 ? w->n_tokens : 4;
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch_fill(&batch, 0, n, llama_vocab_n_tokens(llama_model_get_vocab(model)));
    if (w->token != 0) {
        batch.token[n - 1] = w->token;
    }
    batch.pos[n - 1] += w->pos;
    batch.seq_id[n - 1][0] = w->seq_id;
    const bool ok = llama_decode(ctx, batch) == 0;
    llama_batch_free(batch);
    llama_free(ctx);
    return ok ? 0 : fail("the evaluation failed");
}

static int cmd_errors(struct llama_model *model, int n_args, char **args) {
    for (size_t i = 0; n_args == 1 && i < sizeof mistakes / sizeof mistakes[0]; i++) {
        if (strcmp(mistakes[i].name, args[0]) == 0) {
            return mistake_run(model, &mistakes[i]);
        }
    }
    fprintf(stderr, "probe: unknown name of an error\n");
    return 2;
}

static void print_piece(const struct llama_vocab *vocab, int32_t token) {
    char piece[64];
    const int32_t size = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
    printf("%.*s", size > 0 ? size : 0, piece);
}

static int cmd_tokens(struct llama_model *model, int n_args, char **args) {
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t tokens[256];
    (void) n_args;
    const int32_t n = llama_tokenize(vocab, args[0], (int32_t) strlen(args[0]), tokens, 256, false, false);
    if (n <= 0) {
        return fail("the text has no tokens");
    }
    printf("%d tokens: ", n);
    for (int32_t i = 0; i < n; i++) {
        print_piece(vocab, tokens[i]);
    }
    printf("\n");
    return 0;
}

static int cmd_text(struct llama_model *model, int n_args, char **args) {
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    struct llama_context_params params = context_params(512, 512, 1);
    struct llama_context *ctx = llama_init_from_model(model, params);
    int32_t tokens[256], n_new = n_args > 1 ? atoi(args[1]) : 64;
    int32_t n = llama_tokenize(vocab, args[0], (int32_t) strlen(args[0]), tokens, 256, true, false);
    if (ctx == NULL || n <= 0) {
        return fail("cannot create a context, or the prompt has no tokens");
    }
    struct llama_batch batch = llama_batch_init(256, 0, 1);
    bool ok = true;
    for (int32_t i = 0, at = 0; i < n_new && ok; i++) {
        batch_fill(&batch, at, n, n_vocab);
        memcpy(batch.token, tokens, (size_t) n * sizeof tokens[0]);
        ok = llama_decode(ctx, batch) == 0;
        at += n;
        tokens[0] = ok ? likeliest(llama_get_logits_ith(ctx, n - 1), n_vocab) : 0;
        n = 1;
        if (ok) {
            print_piece(vocab, tokens[0]);
        }
    }
    printf("\n");
    llama_batch_free(batch);
    llama_free(ctx);
    return ok ? 0 : fail("the evaluation failed");
}

static int quantize(const char *path, char **args) {
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    params.n_threads = args[2] != NULL ? atoi(args[2]) : 1;
    params.ftype = atoi(args[1]);
    return llama_model_quantize(path, args[0], &params) == 0 ? 0 : fail("the model cannot be quantised");
}

static const struct {
    const char *name;
    int (*run)(struct llama_model *, int, char **); // NULL: quantize, which takes the path of the model
    int n_min;                                      // required arguments after the model
} commands[] = {
    {"logits", cmd_logits, 1},
    {"memory", cmd_memory, 0},
    {"speed", cmd_speed, 2},
    {"batch", cmd_batch, 3},
    {"cycles", cmd_cycles, 1},
    {"errors", cmd_errors, 1},
    {"tokens", cmd_tokens, 1},
    {"text", cmd_text, 1},
    {"quantize", NULL, 2},
};

int main(int argc, char **argv) {
    if (argc >= 4 && strcmp(argv[1], "compare") == 0) {
        return cmd_compare(argv[2], argv[3], argc == 5 && strcmp(argv[4], "rms") == 0);
    }
    for (size_t i = 0; argc >= 4 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[2], commands[i].name) != 0 || argc - 4 < commands[i].n_min) {
            continue;
        }
        seen.loud = getenv("PROBE_LOUD") != NULL;
        if (!llama_load(argv[1])) {
            return 3;
        }
        llama_log_set(on_log, NULL);
        if (commands[i].run == NULL) {
            return quantize(argv[3], argv + 4);
        }
        struct llama_model *model = model_load(argv[3]);
        if (model == NULL) {
            return fail("the model cannot be loaded");
        }
        const int status = commands[i].run(model, argc - 4, argv + 4);
        llama_model_free(model);
        llama_backend_free();
        return status;
    }
    fprintf(stderr, "usage: probe FOLDER logits|memory|speed|batch|cycles|errors|tokens|text|quantize MODEL ... | probe compare "
                    "A B (see probe.c)\n");
    return 2;
}
