// SPDX-License-Identifier: MIT
// fit_cluster.c: `berth fit MODEL --cluster FILE`: a model over machines that need not be here, by layers and by tensors.

#include "cli/fit_cluster.h"

#include "simulate/cluster.h"

#include <inttypes.h>
#include <string.h>

enum { LAYER, TENSOR, N_WAYS };
static const char *const names[N_WAYS] = {"layer", "tensor"};

static void print_device(const struct cluster *c, const struct foretold *f, int i) {
    const struct cluster_device *d = &c->devices[i];
    const struct foretold_device *x = &f->devices[i];
    char text[5][64];
    printf("    %s %s: %s of %s%s: weights %s, cache %s, compute %s, work %s\n", c->hosts[d->host].name, d->name,
        cli_bytes(foretold_bytes(x), text[0]), cli_short_bytes(d->memory, text[1]),
        foretold_bytes(x) > d->memory ? ", too much" : "", cli_short_bytes(x->weights, text[1] + 32),
        cli_short_bytes(x->cache, text[2]), cli_short_bytes(x->compute, text[3]), cli_short_bytes(x->work, text[4]));
}

static void print_way(const struct cluster *c, const struct foretold *f, const char *name) {
    printf("  --split %s: ", name);
    if (!f->is_known) {
        printf("no: %s\n", f->why);
        return;
    }
    printf("%s%s%s, %.4g tokens a second written, %.4g read\n", cli_colour(stdout, f->fits ? CLI_GREEN : CLI_RED),
        f->fits ? "fits" : "does not fit", cli_colour(stdout, CLI_RESET), f->write, f->read);
    for (int i = 0; i < c->n_devices; i++) {
        print_device(c, f, i);
    }
}

static int best_of(const struct foretold *ways) {
    int best = -1;
    for (int w = 0; w < N_WAYS; w++) {
        if (ways[w].is_known && ways[w].fits && (best < 0 || ways[w].write > ways[best].write)) {
            best = w;
        }
    }
    return best;
}

static void print_text(const struct cluster *c, const char *path, const struct foretold *ways) {
    const struct foretold *known = ways[LAYER].is_known ? &ways[LAYER] : &ways[TENSOR];
    const int best = best_of(ways);
    cli_text(stdout, 0, path);
    printf(" over %d device%s of %d host%s", c->n_devices, c->n_devices == 1 ? "" : "s", c->n_hosts, c->n_hosts == 1 ? "" : "s");
    printf(", context %" PRId64 ", batch %" PRId64 "; speeds are foretold, written with half of the context filled\n",
        known->n_ctx, known->n_batch);
    for (int w = 0; w < N_WAYS; w++) {
        print_way(c, &ways[w], names[w]);
    }
    if (best >= 0) {
        printf("  faster: --split %s\n", names[best]);
    }
}

static void print_way_json(const struct cluster *c, const struct foretold *f) {
    printf("{\"fits\": %s, \"per_second\": %.4f, \"prompt_per_second\": %.4f, \"why\": ",
        f->is_known && f->fits ? "true" : "false", f->write, f->read);
    cli_json_text(stdout, f->why);
    fputs(", \"devices\": [", stdout);
    for (int i = 0; i < c->n_devices && f->is_known; i++) {
        const struct foretold_device *x = &f->devices[i];
        fputs(i > 0 ? ", {\"host\": " : "{\"host\": ", stdout);
        cli_json_text(stdout, c->hosts[c->devices[i].host].name);
        fputs(", \"device\": ", stdout);
        cli_json_text(stdout, c->devices[i].name);
        printf(", \"memory\": %" PRIu64 ", \"weights\": %" PRIu64 ", \"cache\": %" PRIu64 ", \"compute\": %" PRIu64
               ", \"work\": %" PRIu64 "}",
            c->devices[i].memory, x->weights, x->cache, x->compute, x->work);
    }
    fputs("]}", stdout);
}

static void print_json(const struct cluster *c, const char *path, const struct foretold *ways) {
    const int best = best_of(ways);
    fputs("{\"model\": ", stdout);
    cli_json_text(stdout, path);
    printf(", \"ctx\": %" PRId64 ", \"batch\": %" PRId64, ways[LAYER].n_ctx, ways[LAYER].n_batch);
    for (int w = 0; w < N_WAYS; w++) {
        printf(", \"%s\": ", names[w]);
        print_way_json(c, &ways[w]);
    }
    printf(", \"faster\": %s%s%s}\n", best >= 0 ? "\"" : "", best >= 0 ? names[best] : "null", best >= 0 ? "\"" : "");
}

int fit_cluster(const struct model_options *options, const char *file, bool json) {
    struct cluster c;
    struct foretold ways[N_WAYS] = {{0}};
    char path[4096];
    int code = cli_model_path(options, path);
    code = code == CLI_OK ? cluster_read(&c, file) : code;
    if (code != CLI_OK) {
        return code;
    }
    ggml_backend_load_all();
    for (int w = 0; w < N_WAYS && code == CLI_OK; w++) {
        struct model_options o = *options;
        o.by_tensor = w == TENSOR;
        code = cluster_foretell(&c, path, &o, &ways[w]);
    }
    if (code == CLI_OK) {
        (json ? print_json : print_text)(&c, path, ways);
        code = best_of(ways) >= 0 ? CLI_OK : CLI_NO;
    }
    for (int w = 0; w < N_WAYS; w++) {
        foretold_fini(&ways[w]);
    }
    cluster_fini(&c);
    return code;
}
