// SPDX-License-Identifier: MIT
// cluster.c: `berth fit MODEL --cluster FILE`, `berth bench --cluster FILE` and `--split auto`.

#include "simulate/cluster.h"
#include "base/json.h"
#include "cli/models.h"

#include <inttypes.h>

#define MEASURE_SECONDS 40

static const char *const split_names[CLUSTER_N_WAYS] = {"layer", "tensor"};

static void print_device(const struct cluster *c, const struct prediction *f, int i) {
    const struct cluster_device *d = &c->devices[i];
    const struct prediction_device *x = &f->devices[i];
    char text[5][64];
    printf("    %s %s: %s of %s%s: weights %s, cache %s, compute %s, work %s\n", c->hosts[d->host].name, d->name,
        cli_bytes(prediction_bytes(x), text[0]), cli_short_bytes(d->memory, text[1]),
        prediction_bytes(x) > d->memory ? ", too much" : "", cli_short_bytes(x->weights, text[1] + 32),
        cli_short_bytes(x->cache, text[2]), cli_short_bytes(x->compute, text[3]), cli_short_bytes(x->work, text[4]));
}

static void print_prediction(const struct cluster *c, const struct prediction *f, const char *name) {
    printf("  --split %s: ", name);
    if (!f->is_known) {
        printf("no: %s\n", f->why);
        return;
    }
    printf("%s%s%s, decode %.4g tokens/s, prefill %.4g tokens/s\n", cli_colour(stdout, f->fits ? CLI_GREEN : CLI_RED),
        f->fits ? "fits" : "does not fit", cli_colour(stdout, CLI_RESET), f->decode, f->prefill);
    for (int i = 0; i < c->n_devices; i++) {
        print_device(c, f, i);
    }
}

static void print_text(const struct cluster *c, const char *path, const struct prediction *ways) {
    const struct prediction *known = ways[CLUSTER_LAYER].is_known ? &ways[CLUSTER_LAYER] : &ways[CLUSTER_TENSOR];
    const int best = prediction_best(ways);
    cli_text(stdout, 0, path);
    printf(" over %d device%s of %d host%s", c->n_devices, c->n_devices == 1 ? "" : "s", c->n_hosts, c->n_hosts == 1 ? "" : "s");
    printf(", context %" PRId64 ", batch %" PRId64 "; predicted speeds, decode with half of the context filled\n", known->n_ctx,
        known->n_batch);
    for (int w = 0; w < CLUSTER_N_WAYS; w++) {
        print_prediction(c, &ways[w], split_names[w]);
    }
    if (best >= 0) {
        printf("  faster: --split %s\n", split_names[best]);
    }
}

static void print_prediction_json(
    struct berth_json_writer *w, const char *key, const struct cluster *c, const struct prediction *f) {
    berth_json_begin(w, key, '{');
    berth_json_printf(w, "'fits': %c, 'per_second': %.4f, 'prompt_per_second': %.4f, 'why': %s", f->is_known && f->fits,
        f->decode, f->prefill, f->why);
    berth_json_begin(w, "devices", '[');
    for (int i = 0; i < c->n_devices && f->is_known; i++) {
        const struct prediction_device *x = &f->devices[i];
        berth_json_printf(w,
            "{'host': %s, 'device': %s, 'memory': %" PRIu64 ", 'weights': %" PRIu64 ", 'cache': %" PRIu64 ", 'compute': %" PRIu64
            ", 'work': %" PRIu64 "}",
            c->hosts[c->devices[i].host].name, c->devices[i].name, c->devices[i].memory, x->weights, x->cache, x->compute,
            x->work);
    }
    berth_json_end(w);
    berth_json_end(w);
}

static void print_json(const struct cluster *c, const char *path, const struct prediction *ways) {
    const int best = prediction_best(ways);
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(
        &w, "'model': %s, 'ctx': %" PRId64 ", 'batch': %" PRId64, path, ways[CLUSTER_LAYER].n_ctx, ways[CLUSTER_LAYER].n_batch);
    for (int i = 0; i < CLUSTER_N_WAYS; i++) {
        print_prediction_json(&w, split_names[i], c, &ways[i]);
    }
    berth_json_printf(&w, "'faster': %s}\n", best >= 0 ? split_names[best] : NULL);
}

static int cluster_open(struct cluster *c, const char *file) {
    struct model_error error = {""};
    size_t size;
    char *text = cli_read_text(file, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    const bool ok = cluster_read(c, text, size, file, &error);
    berth_free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

int cli_cluster_fit(const struct model_options *options, const char *file, bool json) {
    struct cluster c;
    struct model_error error = {""};
    struct prediction ways[CLUSTER_N_WAYS];
    char path[4096];
    int code = cli_model_path(options, path);
    if (code == CLI_OK) {
        code = cluster_open(&c, file);
    }
    if (code != CLI_OK) {
        return code;
    }
    ggml_backend_load_all();
    if (cluster_predict_ways(&c, path, options, ways, &error)) {
        (json ? print_json : print_text)(&c, path, ways);
        code = prediction_best(ways) >= 0 ? CLI_OK : CLI_NEGATIVE;
    } else {
        code = cli_fail(CLI_FAILURE, "%s", error.text);
    }
    for (int w = 0; w < CLUSTER_N_WAYS; w++) {
        prediction_fini(&ways[w]);
    }
    cluster_fini(&c);
    return code;
}

// Sets the types to measure: those of the model's weights, or all types that weights can have if path is NULL.
static bool types_find(const char *path, struct cluster_measure_params *params, struct model_error *error) {
    if (path != NULL) {
        struct model *model = model_open(path, error);
        if (model == NULL) {
            return false;
        }
        cluster_measure_params_set_model(params, model);
        model_free(model);
        return true;
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        params->measures_type[t] = type_is_real((enum ggml_type) t) && ggml_blck_size((enum ggml_type) t) > 0;
    }
    return true;
}

int cli_cluster_bench(const char *path, int64_t n_threads, const char *out) {
    struct cluster_measure_params params = {.n_threads = n_threads, .seconds = MEASURE_SECONDS, .watch = cli_watch};
    struct model_error error = {""};
    struct cluster c;
    if (!types_find(path, &params, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (cli_output_check(out) != CLI_OK) {
        return CLI_FAILURE;
    }
    ggml_backend_load_all();
    const bool ok = cluster_measure(&c, &params, &error);
    cli_progress_end();
    if (!ok) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    FILE *file = cli_open(out);
    if (file != NULL) {
        cluster_write(&c, file);
    }
    cluster_fini(&c);
    return file != NULL ? cli_close(file, out, !ferror(file)) : CLI_FAILURE;
}

int cli_cluster_choose(struct model_options *o) {
    struct model_error error = {""};
    char path[4096], text[128];
    const int code = cli_model_path(o, path);
    if (code != CLI_OK) {
        return code;
    }
    const bool ok = cluster_choose(path, o, &cli_watch, text, &error);
    cli_progress_end();
    if (!ok) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (text[0] != '\0' && !cli_is_quiet()) {
        fprintf(stderr, "%s\n", text);
    }
    return CLI_OK;
}
