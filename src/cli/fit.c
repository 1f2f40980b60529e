// SPDX-License-Identifier: MIT
// fit.c: `berth fit MODEL --memory N` finds the largest context and batch within N bytes, predicts the speed, and shows
// the gain of more memory.

#include "fit/fit.h"
#include "base/json.h"
#include "cli/help.h"
#include "cli/plans.h"

#include <inttypes.h>
#include <string.h>

struct options {
    struct fit_question question;
    const char *cluster;
    int32_t n_parallel;
    bool json;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION(0, "memory", "N",
        "memory limit in bytes over all devices; takes K, M, G, KiB, MiB, ..., kB, MB, ... NAME=N limits one device. Several "
        "limits are separated by commas, or the option is repeated. The limit of a GPU that is not named is its free memory",
        .parse = cli_fit_memory, .is_list = true, CLI_TO(struct options, question.limits)),
    CLI_OPTION(0, "allow", "LIST",
        "keep the context (--ctx, or that of training) and allow these changes to fit: batch (smaller), recompute (of results "
        "instead of keeping them), cache-type (smaller), spill (layers that do not fit on the GPU stay on the host)",
        .parse = cli_fit_allow, CLI_TO(struct options, question.allow)),
    CLI_OPTION(0, "cluster", "FILE",
        "instead of --memory: predict bytes per device and speed on the simulated cluster in FILE, by layers and by tensors; "
        "'berth "
        "bench --cluster' writes FILE, docs/user/scale.md describes it",
        .takes = ".json", .use = CLI_READ, CLI_TO(struct options, cluster)),
    CLI_OPTION(0, "parallel", "N",
        "plan 'berth serve --parallel N' with this memory: how many users have a full context (--ctx) at the same time, and how "
        "fast they are served",
        CLI_RANGE(1, 1024), CLI_TO(struct options, n_parallel)),
    CLI_OPT_MODEL,
    CLI_OPTION('c', "ctx", "N", "find only the batch, for a context of N positions", CLI_INT_OF_MODEL(n_ctx, INT32_MAX),
        .also = "ctx-size"),
    CLI_OPTION('b', "batch", "N", "find only the context, for batches of N tokens", CLI_INT_OF_MODEL(n_batch, INT32_MAX),
        .also = "batch-size"),
    CLI_OPTION(0, "max-ctx", "N", "largest context to try (default: that of training)", CLI_RANGE(1, INT32_MAX),
        CLI_TO(struct options, question.max_ctx)),
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_THREADS,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_HOST_EXPERTS,
    CLI_OPT_LLAMA,
    CLI_OPT_JSON(CLI_TO(struct options, json),
        "print one JSON object: model, fits, ctx, batch, total, devices, next, alive, lower and others (see "
        "docs/berth.schema.json, also for --parallel); with --cluster: model, ctx, batch, layer, tensor, faster"),
    {0},
};

const struct cli_help cli_fit_help = {
    .command = "fit",
    .what = "find the largest context and batch of a model in given memory",
    .operands = "--memory N | --cluster FILE [MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, question.model)},
    .about =
        "Finds the largest context that fits into N bytes with batches of 512 tokens (or of the whole context, if it is "
        "shorter), then the largest batch for that context. The bytes are exact: weights, cache, planned compute memory of "
        "the largest graphs, and work memory, on each device. Layers are placed as by 'berth run'. It also prints what limits "
        "the context (memory or training), the predicted speed of decode and of prompts from a short measurement of the devices, "
        "and the gain "
        "of one to four GiB more. With --allow the context is kept instead. Weights are not read, except of models of at most "
        "64 MiB, which are measured directly. Without MODEL, the small model of Berth is used.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.question.model.may_llama = true},
    .negative = "nothing fits",
    .examples = {{"The largest context in 8 GiB", "fit --memory 8GiB model.gguf"},
        {"How many users, and how fast", "fit --memory 6G --parallel 8 model.gguf"},
        {"The full context on one GPU with 6 GiB and the host", "fit --memory CUDA0=6G,CPU=16G --allow batch,spill model.gguf"}},
};

// By enum fit_limit_kind: the name in JSON and the text.
static const struct {
    const char *name, *what;
} limits[] = {
    [FIT_GIVEN] = {"given", "as given"},
    [FIT_MEMORY] = {"memory", "limited by memory"},
    [FIT_POSITIONS] = {"model", "limited by the model: it has no more positions"},
    [FIT_MODEL] = {"model", "limited to the context of training; --max-ctx raises the limit"},
    [FIT_MAX_CTX] = {"max-ctx", "limited by --max-ctx"},
    [FIT_CONTEXT] = {"context", "the whole context"},
    [FIT_DEFAULT] = {"default", "the default size"},
};

// The question, the model as the search has left it, and the answer.
struct found {
    const struct options *o;
    struct workbench *m;
    struct fit_found f;
};

// device: index of a device, or FIT_ALL.
static const char *limit_name(const struct found *s, int device) {
    return device >= 0 ? ggml_backend_dev_name(s->m->devices.dev[device]) : "all devices";
}

static void print_limits(const struct found *s) {
    const struct fit_limits *given = &s->o->question.limits;
    char text[64];
    for (size_t i = 0; i < given->n; i++) {
        const struct fit_limit *limit = &given->items[i];
        const char *name = limit->device >= 0 ? limit_name(s, limit->device) : "";
        if (limit->text != NULL) {
            printf("%s%s%s%s", i > 0 ? ", " : "", cli_bytes(limit->bytes, text), *name != '\0' ? " of " : "", name);
        }
    }
}

// full: the device whose limit is reached, FIT_ALL or FIT_NONE.
static void print_limit(const struct found *s, const char *what, enum fit_limit_kind limit, int full) {
    const bool is_named = limit == FIT_MEMORY && s->o->question.limits.n > 1 && full != FIT_NONE;
    printf("  %-8s %s%s%s\n", what, limits[limit].what, is_named ? ", of " : "", is_named ? limit_name(s, full) : "");
}

// Returns the bytes of compute memory that recomputing saves.
static uint64_t saved_of(const struct found *s) {
    uint64_t bytes = 0;
    for (int d = 0; d < s->m->devices.n; d++) {
        bytes += s->m->session->memory[d].compute;
    }
    return s->f.answer.compute > 0 && s->f.answer.compute_once > bytes ? s->f.answer.compute_once - bytes : 0;
}

static void print_taken(const struct found *s, const char *indent, int device) {
    const struct fit_limit *limit = fit_limits_get(&s->o->question.limits, device);
    const uint64_t taken = fit_bytes(s->m, device);
    char text[64];
    printf("%stotal    %s\n", indent, cli_bytes(taken, text));
    if (limit != NULL && taken <= limit->bytes) {
        printf("%sfree     %s\n", indent, cli_bytes(limit->bytes - taken, text));
    } else if (limit != NULL) {
        printf("%smissing  %s\n", indent, cli_bytes(taken - limit->bytes, text));
    }
}

static void print_device(const struct found *s, int d) {
    const struct workbench *m = s->m;
    const struct session_memory *x = &m->session->memory[d];
    char text[64];
    printf("  %s\n    weights  %s%s\n", limit_name(s, d), cli_bytes(x->weights, text),
        m->model->parts[d].is_mapped ? ", in pages of the mapped file" : "");
    printf("    cache    %s\n", cli_bytes(x->cache, text));
    printf("    compute  %s", cli_bytes(x->compute, text));
    printf(x->report.proven ? ", proven optimal\n" : ", at most %.3f%% above the optimum\n", 100 * x->report.gap);
    printf("    work     %s\n", cli_bytes(x->work, text));
    if (fit_bytes(m, d) < fit_bytes(m, FIT_ALL) || fit_limits_get(&s->o->question.limits, d) != NULL) {
        print_taken(s, "    ", d);
    }
}

static void print_recompute(const struct found *s) {
    const struct session_recompute_plan *plan = &s->m->session->recompute_plan;
    char text[2][64];
    if ((s->o->question.allow & FIT_RECOMPUTE) == 0) {
        return;
    }
    if (!s->m->model->engine->can_limit) {
        puts("  ops      cannot be recomputed: libllama runs this model");
    } else if (s->m->devices.n > 1) {
        puts("  ops      cannot be recomputed: that requires a single device");
    } else if (s->f.answer.compute == 0 && !s->f.answer.fits && s->f.answer.is_cut) {
        puts("  ops      none recomputed: no schedule found within 20 s; the search is incomplete");
    } else if (s->f.answer.compute == 0 && !s->f.answer.fits && s->f.answer.compute_least > 0) {
        printf("  ops      none recomputed: no schedule fits; compute takes %s without recomputing, at least %s with it\n",
            cli_short_bytes(s->f.answer.compute_once, text[0]), cli_short_bytes(s->f.answer.compute_least, text[1]));
    } else if (s->f.answer.compute == 0 && !s->f.answer.fits) {
        puts("  ops      none recomputed: more bytes are missing than compute takes");
    } else if (s->f.answer.compute == 0) {
        puts("  ops      none recomputed: not needed");
    } else {
        printf("  ops      %" PRId64 " of %" PRId64
               " of a batch recomputed%s: saves %s of %s of compute; prefill costs %.4f times as much\n",
            plan->n_recomputed, plan->n_nodes, plan->n_recomputed == 0 ? " (only reordered)" : "",
            cli_short_bytes(saved_of(s), text[0]), cli_short_bytes(s->f.answer.compute_once, text[1]), plan->cost_ratio);
    }
}

static void print_setting(const struct found *s) {
    const struct fit_answer *a = &s->f.answer;
    if (s->o->question.allow != 0) {
        printf("  cache    %s\n", ggml_type_name(a->cache));
        for (int d = 0; d + 1 < s->m->devices.n; d++) {
            const struct model *m = s->m->model;
            int64_t n = 0, n_experts = 0;
            for (int64_t i = 0; i <= m->params.n_layer; i++) {
                n += m->layer_device[i] == d;
                n_experts += i < m->params.n_layer && m->expert_device != NULL && m->expert_device[i] == d;
            }
            printf("  layers   %" PRId64 " of %" PRId64 " on %s", n, m->params.n_layer + 1, limit_name(s, d));
            if (m->expert_device != NULL) {
                printf(", with the experts of %" PRId64, n_experts);
            }
            putchar('\n');
        }
    }
    print_recompute(s);
    if (s->f.per_second > 0) {
        printf("  speed    %.1f tokens/s predicted, with half of the context filled%s\n", s->f.per_second,
            s->f.tried > 0 ? ", from a measurement of the model" : "");
    }
    if (s->f.prompt_per_second > 0) {
        printf("  prompts  %.1f tokens/s predicted, for a prompt of %" PRId64 " tokens\n", s->f.prompt_per_second, s->f.n_prompt);
    }
}

static void print_next(const struct found *s) {
    char text[64];
    for (int i = 0; i < s->f.n_next; i++) {
        const struct fit_next *n = &s->f.next[i];
        printf("  with     %s of %s: context %" PRId64 ", batch %" PRId64, cli_bytes(n->bytes, text), limit_name(s, n->device),
            n->answer.n_ctx, n->answer.n_batch);
        if (s->o->question.allow != 0) {
            printf(", cache %s, %" PRId64 " layers on the host", ggml_type_name(n->answer.cache), n->answer.n_host);
            if (n->answer.n_host_experts > n->answer.n_host) {
                printf(", experts of %" PRId64 " layers on the host", n->answer.n_host_experts);
            }
        }
        printf(n->per_second > 0 ? ", %.1f tokens/s\n" : "\n", n->per_second);
    }
}

// Prints the values alive at the peak and the options that lower it, as JSON, or as text if w is NULL. Prints nothing for an
// engine that would load the model a second time.
static void print_peak(const struct found *s, struct berth_json_writer *w) {
    if (!s->m->model->engine->can_replan) {
        return;
    }
    struct model_options options = s->o->question.model;
    fit_apply(&s->o->question, &s->f.answer, &options);
    if (w != NULL) {
        cli_peak_json(w, s->m->path, &options);
    } else {
        cli_peak_print(stdout, s->m->path, &options);
    }
}

static void print_text(const struct found *s) {
    const struct workbench *m = s->m;
    const struct fit_answer *a = &s->f.answer;
    char text[64];
    cli_text(stdout, 0, m->path);
    fputs(" in ", stdout);
    print_limits(s);
    fputs(": ", stdout);
    if (!a->fits) {
        printf("%sdoes not fit%s: a context of %" PRId64 " with a batch of %" PRId64 " requires %s", cli_colour(stdout, CLI_RED),
            cli_colour(stdout, CLI_RESET), a->n_ctx, a->n_batch, cli_bytes(fit_bytes(m, a->full), text));
        printf("%s%s\n", a->full >= 0 ? " of " : "", a->full >= 0 ? limit_name(s, a->full) : "");
        print_recompute(s);
    } else {
        printf("%scontext %" PRId64 ", batch %" PRId64 "%s\n", cli_colour(stdout, CLI_GREEN), a->n_ctx, a->n_batch,
            cli_colour(stdout, CLI_RESET));
        print_limit(s, "context", a->ctx_limit, a->ctx_full);
        print_limit(s, "batch", a->batch_limit, a->batch_full);
        print_setting(s);
    }
    print_taken(s, "  ", FIT_ALL);
    for (int d = 0; d < m->devices.n; d++) {
        if (fit_bytes(m, d) > 0) {
            print_device(s, d);
        }
    }
    print_next(s);
    print_peak(s, NULL);
    printf("  %d plan%s made\n", a->n_plans, a->n_plans == 1 ? "" : "s");
}

static void print_limits_json(struct berth_json_writer *w, const struct found *s) {
    const struct fit_limits *given = &s->o->question.limits;
    const struct fit_limit *all = fit_limits_get(given, FIT_ALL);
    if (all != NULL) {
        berth_json_printf(w, "'memory': %" PRIu64, all->bytes);
    } else {
        berth_json_printf(w, "'memory': null");
    }
    berth_json_begin(w, "limits", '{');
    for (size_t i = 0; i < given->n; i++) {
        if (given->items[i].device >= 0) {
            berth_json_printf(w, "%s: %" PRIu64, limit_name(s, given->items[i].device), given->items[i].bytes);
        }
    }
    berth_json_end(w);
}

static void print_answer_json(struct berth_json_writer *w, const struct fit_answer *a, double per_second) {
    berth_json_printf(w, "'cache_type': %s, 'host_layers': %" PRId64 ", 'host_experts': %" PRId64 ", 'per_second': %.3f",
        ggml_type_name(a->cache), a->n_host, a->n_host_experts, per_second);
}

static void print_json(const struct found *s) {
    const struct fit_answer *a = &s->f.answer;
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'model': %s", s->m->path);
    print_limits_json(&w, s);
    const bool is_full = a->ctx_limit == FIT_MEMORY || a->batch_limit == FIT_MEMORY;
    const int full = a->batch_limit == FIT_MEMORY ? a->batch_full : a->ctx_full;
    berth_json_printf(&w, "'fits': %c, 'ctx': %" PRId64 ", 'ctx_limit': %s, 'batch': %" PRId64 ", 'batch_limit': %s, 'full': %s",
        a->fits, a->n_ctx, limits[a->ctx_limit].name, a->n_batch, limits[a->batch_limit].name,
        is_full && full != FIT_NONE ? limit_name(s, full) : NULL);
    print_answer_json(&w, a, s->f.per_second);
    berth_json_printf(&w, "'prompt_per_second': %.3f, 'prompt_tokens': %" PRId64, s->f.prompt_per_second, s->f.n_prompt);
    berth_json_printf(&w, "'again': %" PRId64 ", 'slower': %.6f, 'saved': %" PRIu64 ", 'total': %" PRIu64 ", 'plans': %d",
        a->compute > 0 ? s->m->session->recompute_plan.n_recomputed : 0,
        a->compute > 0 ? s->m->session->recompute_plan.cost_ratio : 1.0, saved_of(s), fit_bytes(s->m, FIT_ALL), a->n_plans);
    cli_model_memory_json(&w, "devices", s->m);
    berth_json_begin(&w, "next", '[');
    for (int i = 0; i < s->f.n_next; i++) {
        const struct fit_next *n = &s->f.next[i];
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'device': %s, 'memory': %" PRIu64 ", 'ctx': %" PRId64 ", 'batch': %" PRId64,
            n->device >= 0 ? limit_name(s, n->device) : "all", n->bytes, n->answer.n_ctx, n->answer.n_batch);
        print_answer_json(&w, &n->answer, n->per_second);
        berth_json_end(&w);
    }
    berth_json_end(&w);
    print_peak(s, &w);
    puts("}");
}

static int model_fit(struct options *o) {
    struct model_error error = {""};
    struct workbench m;
    struct found s = {.o = o, .m = &m};
    if (!fit_open(&o->question, &m, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cli_context_warn(o->question.model.n_ctx, m.model->params.n_ctx_train);
    const bool ok = fit_find(&o->question, &m, &s.f, &error);
    cli_progress_end();
    int code = s.f.answer.fits ? CLI_OK : CLI_NEGATIVE;
    if (ok) {
        (o->json ? print_json : print_text)(&s);
    } else {
        code = cli_fail(CLI_FAILURE, "%s", error.text);
    }
    workbench_close(&m);
    return code;
}

static int parallel_fit(const struct options *o) {
    const struct fit_question *q = &o->question;
    if (q->limits.n != 1 || q->limits.items[0].name_length > 0 || q->allow != 0 || q->max_ctx > 0 || q->model.has_cache_type) {
        return cli_usage("fit", "--parallel requires --memory N without a device, and no --cluster, --allow, --max-ctx or "
                                "--cache-type");
    }
    return cli_serve_plan(&q->model, q->limits.items[0].bytes, o->n_parallel, o->json, true);
}

int cli_fit(const struct cli_args *args) {
    struct options *o = args->options;
    if ((o->question.limits.n > 0) == (o->cluster != NULL)) {
        return cli_usage("fit", o->cluster != NULL ? "--memory and --cluster cannot be combined" : "missing option: --memory N");
    }
    if (o->n_parallel > 0) {
        return parallel_fit(o);
    }
    o->question.watch = cli_watch;
    return o->cluster != NULL ? cli_cluster_fit(&o->question.model, o->cluster, o->json) : model_fit(o);
}
