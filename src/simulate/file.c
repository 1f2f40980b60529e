// SPDX-License-Identifier: MIT
// file.c: reads and writes a cluster as JSON (docs/user/scale.md). A device requires "memory", "bandwidth" and "flops". Other
// speeds default to "bandwidth" or "flops".

#include "simulate/cluster.h"

#include "base/json.h"
#include "base/min.h"
#include "ggml-backend-impl.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#define DEFAULT_LATENCY 5e-6 // seconds between devices of one host, if the file has no link for them

// ---- the lists ----

static void *list_add(void **items, int *n, size_t size) {
    char *more = *n < CLUSTER_MAX ? berth_realloc(*items, ((size_t) *n + 1) * size) : NULL;
    if (more == NULL) {
        return NULL;
    }
    *items = more;
    return memset(more + (size_t) (*n)++ * size, 0, size);
}

struct cluster_host *cluster_host_add(struct cluster *c) {
    struct cluster_host *h = list_add((void **) &c->hosts, &c->n_hosts, sizeof *h);
    if (h != NULL) {
        h->together = 1; // devices that compute at the same time are as fast as alone
    }
    return h;
}

struct cluster_device *cluster_device_add(struct cluster *c) {
    struct cluster_device *d = list_add((void **) &c->devices, &c->n_devices, sizeof *d);
    if (d != NULL) {
        *d = (struct cluster_device){.name = "CPU", .host = c->n_hosts - 1, .alignment = 64, .threads = 1};
    }
    return d;
}

struct cluster_link *cluster_link_add(struct cluster *c) {
    struct cluster_link *l = list_add((void **) &c->links, &c->n_links, sizeof *l);
    if (l != NULL) {
        l->a = l->b = -1;
    }
    return l;
}

void cluster_fini(struct cluster *c) {
    berth_free(c->hosts);
    berth_free(c->devices);
    berth_free(c->links);
    *c = (struct cluster){0};
}

bool cluster_is_cpu(const struct cluster_device *d) {
    const size_t n = strlen(d->name);
    return n >= 3 && strcmp(d->name + n - 3, "CPU") == 0;
}

int cluster_parts(const struct cluster *c, int *devices) {
    int n = 0, n_gpus = 0;
    for (int i = 1; i < c->n_devices; i++) {
        n_gpus += !cluster_is_cpu(&c->devices[i]);
    }
    for (int i = 0; i < c->n_devices; i++) {
        if (n_gpus > 0 && (i == 0 || cluster_is_cpu(&c->devices[i]))) {
            continue;
        }
        if (n < GGML_BACKEND_META_MAX_DEVICES) {
            devices[n] = i;
        }
        n++;
    }
    return n;
}

struct cluster_link cluster_link_of(const struct cluster *c, int i, int k) {
    const int a = c->devices[i].host, b = c->devices[k].host;
    struct cluster_link found = {
        .a = -1, .b = -1, .latency = DEFAULT_LATENCY, .bandwidth = min_f64(c->devices[i].bandwidth, c->devices[k].bandwidth) / 2};
    for (int l = 0; l < c->n_links; l++) {
        const struct cluster_link *link = &c->links[l];
        const bool is_theirs = (link->a == a && link->b == b) || (link->a == b && link->b == a);
        if (is_theirs || (link->a < 0 && a != b && found.a < 0)) {
            found = *link;
        }
    }
    return found;
}

// ---- reading ----

static bool number_read(struct berth_json *r, double min, double max, double *out) {
    struct berth_json_text text;
    char copy[64], *end;
    if (!berth_json_number_text(r, &text)) {
        return false;
    }
    snprintf(copy, sizeof copy, "%.*s", (int) min_size(text.len, sizeof copy - 1), text.text);
    *out = strtod(copy, &end);
    if (*end == '\0' && *out >= min && *out <= max) {
        return true;
    }
    snprintf(copy, sizeof copy, "a number from %g to %g is expected", min, max);
    return berth_json_fail(r, copy);
}

static bool name_read(struct berth_json *r, char name[64]) {
    struct berth_json_text text;
    if (!berth_json_string(r, &text)) {
        return false;
    }
    if (text.len == 0 || text.len > 40) { // the name must fit into 64 bytes after host_repeat has appended a number
        return berth_json_fail(r, "a name of 1 to 40 bytes is expected");
    }
    snprintf(name, 64, "%.*s", (int) text.len, text.text);
    return true;
}

static int type_find(struct berth_json_text name) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const char *type = ggml_type_name((enum ggml_type) t);
        if (type != NULL && berth_json_is(name, type)) {
            return t;
        }
    }
    return -1;
}

// Reads an object with one speed per type of weights, for example {"q4_K": 1e10, "f16": 2e10}.
static bool types_read(struct berth_json *r, double *by_type) {
    struct berth_json_text key;
    berth_json_object(r);
    while (berth_json_key(r, &key)) {
        const int type = type_find(key);
        if (type < 0) {
            return berth_json_fail(r, "unknown tensor type");
        }
        number_read(r, 1, 1e18, &by_type[type]);
    }
    return r->status == GGML_STATUS_SUCCESS;
}

// The JSON keys of numbers of struct cluster_device (cluster.h), with their least valid values.
static const struct {
    const char *name;
    size_t at; // offset in struct cluster_device
    double min;
} numbers[] = {
    {"bandwidth", offsetof(struct cluster_device, bandwidth), 1},
    {"flops", offsetof(struct cluster_device, flops), 1},
    {"start", offsetof(struct cluster_device, start), 0},
    {"op", offsetof(struct cluster_device, op), 0},
    {"attend_read", offsetof(struct cluster_device, attend_read), 1},
    {"attend", offsetof(struct cluster_device, attend), 1},
};
#define N_NUMBERS (sizeof numbers / sizeof numbers[0])

static double *number_of(const struct cluster_device *d, size_t i) {
    return (double *) (uintptr_t) ((const char *) d + numbers[i].at);
}

static bool field_read(struct berth_json *r, struct berth_json_text key, struct cluster_device *d) {
    int64_t n = 0;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (berth_json_is(key, numbers[i].name)) {
            return number_read(r, numbers[i].min, 1e18, number_of(d, i));
        }
    }
    if (berth_json_is(key, "name")) {
        return name_read(r, d->name);
    }
    if (berth_json_is(key, "read") || berth_json_is(key, "product")) {
        return types_read(r, berth_json_is(key, "read") ? d->read : d->product);
    }
    if (berth_json_is(key, "threads")) {
        return berth_json_int(r, 1, 1024, &d->threads);
    }
    if (berth_json_is(key, "memory")) {
        berth_json_int(r, 1, (int64_t) 1 << 60, &n);
        d->memory = (uint64_t) n;
        return r->status == GGML_STATUS_SUCCESS;
    }
    if (berth_json_is(key, "alignment")) {
        if (!berth_json_int(r, 1, 1 << 20, &n)) {
            return false;
        }
        d->alignment = (uint64_t) n;
        return (n & (n - 1)) == 0 || berth_json_fail(r, "\"alignment\" must be a power of two");
    }
    return berth_json_skip(r);
}

static bool list_read(struct berth_json *r, struct cluster *c, bool (*item_read)(struct berth_json *r, struct cluster *c)) {
    berth_json_array(r);
    while (berth_json_next(r)) {
        item_read(r, c);
    }
    return r->status == GGML_STATUS_SUCCESS;
}

static bool device_read(struct berth_json *r, struct cluster *c) {
    struct berth_json_text key;
    struct cluster_device *d = cluster_device_add(c);
    if (d == NULL) {
        return berth_json_fail(r, "too many devices");
    }
    berth_json_object(r);
    while (berth_json_key(r, &key)) {
        field_read(r, key, d);
    }
    if (d->memory == 0 || d->bandwidth == 0 || d->flops == 0) {
        berth_json_fail(r, "a device requires \"memory\", \"bandwidth\" and \"flops\"");
    }
    return r->status == GGML_STATUS_SUCCESS;
}

// Adds n - 1 copies of the last host and its devices.
static bool host_repeat(struct berth_json *r, struct cluster *c, int first_device, int64_t n) {
    const struct cluster_host one = c->hosts[c->n_hosts - 1];
    const int n_devices = c->n_devices - first_device;
    for (int64_t k = 2; k <= n; k++) {
        struct cluster_host *h = cluster_host_add(c);
        if (h == NULL) {
            return berth_json_fail(r, "too many hosts");
        }
        *h = one;
        snprintf(h->name, sizeof h->name, "%.40s%" PRId64, one.name, k);
        for (int i = 0; i < n_devices; i++) {
            struct cluster_device *d = cluster_device_add(c);
            if (d == NULL) {
                return berth_json_fail(r, "too many devices");
            }
            *d = c->devices[first_device + i];
            d->host = c->n_hosts - 1;
        }
    }
    return true;
}

static bool host_read(struct berth_json *r, struct cluster *c) {
    struct berth_json_text key;
    struct cluster_host *h = cluster_host_add(c);
    const int first = c->n_devices;
    int64_t count = 1;
    if (h == NULL) {
        return berth_json_fail(r, "too many hosts");
    }
    snprintf(h->name, sizeof h->name, "host%d", c->n_hosts);
    berth_json_object(r);
    while (berth_json_key(r, &key)) {
        if (berth_json_is(key, "name")) {
            name_read(r, h->name);
        } else if (berth_json_is(key, "count")) {
            berth_json_int(r, 1, CLUSTER_MAX, &count);
        } else if (berth_json_is(key, "together")) {
            number_read(r, 1e-3, 1, &h->together);
        } else if (berth_json_is(key, "devices")) {
            list_read(r, c, device_read);
        } else {
            berth_json_skip(r);
        }
    }
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    return (c->n_devices > first || berth_json_fail(r, "a host requires \"devices\"")) && host_repeat(r, c, first, count);
}

static bool link_host_read(struct berth_json *r, const struct cluster *c, int *host) {
    struct berth_json_text text;
    if (!berth_json_next(r)) {
        return berth_json_fail(r, "\"between\" requires the names of two hosts");
    }
    if (!berth_json_string(r, &text)) {
        return false;
    }
    for (int i = c->n_hosts - 1; i >= 0; i--) {
        if (berth_json_is(text, c->hosts[i].name)) {
            *host = i;
            return true;
        }
    }
    return berth_json_fail(r, "unknown host: hosts must precede links");
}

static bool link_read(struct berth_json *r, struct cluster *c) {
    struct berth_json_text key;
    struct cluster_link *l = cluster_link_add(c);
    if (l == NULL) {
        return berth_json_fail(r, "too many links");
    }
    berth_json_object(r);
    while (berth_json_key(r, &key)) {
        if (berth_json_is(key, "latency")) {
            number_read(r, 0, 1e3, &l->latency);
        } else if (berth_json_is(key, "bandwidth")) {
            number_read(r, 1, 1e18, &l->bandwidth);
        } else if (berth_json_is(key, "between")) {
            if (berth_json_array(r) && link_host_read(r, c, &l->a) && link_host_read(r, c, &l->b) && berth_json_next(r)) {
                berth_json_fail(r, "\"between\" requires the names of two hosts");
            }
        } else {
            berth_json_skip(r);
        }
    }
    if (l->bandwidth == 0) {
        berth_json_fail(r, "a link requires \"latency\" and \"bandwidth\"");
    }
    return r->status == GGML_STATUS_SUCCESS;
}

// Finds two hosts without a link. False: every two hosts have a link.
static bool unlinked_hosts_find(const struct cluster *c, int *a, int *b) {
    bool has_default_link = false; // a link without "between" is valid for any two hosts
    for (int l = 0; l < c->n_links; l++) {
        has_default_link |= c->links[l].a < 0;
    }
    for (int i = 0; i < c->n_devices; i++) {
        for (int k = 0; k < i; k++) {
            const int x = c->devices[i].host, y = c->devices[k].host;
            const struct cluster_link link = cluster_link_of(c, i, k);
            if (x != y && link.a < 0 && !has_default_link) {
                *a = y;
                *b = x;
                return true;
            }
        }
    }
    return false;
}

static bool cluster_check(const struct cluster *c, const char *name, struct model_error *error) {
    int a, b;
    if (c->n_devices == 0 || !cluster_is_cpu(&c->devices[0])) {
        return model_fail(
            error, "%s: the first device of the first host must be the program's CPU, with a name that ends in CPU", name);
    }
    if (unlinked_hosts_find(c, &a, &b)) {
        return model_fail(error, "%s: missing link between hosts '%s' and '%s'", name, c->hosts[a].name, c->hosts[b].name);
    }
    return true;
}

bool cluster_read(struct cluster *c, const char *text, size_t size, const char *name, struct model_error *error) {
    struct berth_json r;
    struct berth_json_text key;
    *c = (struct cluster){0};
    berth_json_init(&r, text, size, name);
    berth_json_object(&r);
    while (berth_json_key(&r, &key)) {
        if (berth_json_is(key, "hosts")) {
            list_read(&r, c, host_read);
        } else if (berth_json_is(key, "links")) {
            list_read(&r, c, link_read);
        } else {
            berth_json_skip(&r);
        }
    }
    berth_json_done(&r);
    const bool ok = r.status == GGML_STATUS_SUCCESS ? cluster_check(c, name, error) : model_fail(error, "%s", berth_last_error());
    berth_json_fini(&r);
    if (!ok) {
        cluster_fini(c);
    }
    return ok;
}

// ---- writing ----

static void types_write(struct berth_json_writer *w, const char *name, const double *by_type) {
    berth_json_line(w, 7);
    berth_json_begin(w, name, '{');
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (by_type[t] > 0) {
            berth_json_printf(w, "%s: %.4g", ggml_type_name((enum ggml_type) t), by_type[t]);
        }
    }
    berth_json_end(w);
}

static void device_write(struct berth_json_writer *w, const struct cluster_device *d) {
    berth_json_line(w, 6);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'memory': %" PRIu64 ", 'alignment': %" PRIu64 ", 'threads': %" PRId64, d->name, d->memory,
        d->alignment, d->threads);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (*number_of(d, i) > 0) {
            berth_json_printf(w, "%s: %.4g", numbers[i].name, *number_of(d, i));
        }
    }
    types_write(w, "read", d->read);
    types_write(w, "product", d->product);
    berth_json_end(w);
}

static void host_write(struct berth_json_writer *w, const struct cluster *c, int h) {
    berth_json_line(w, 4);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'together': %.3f", c->hosts[h].name, c->hosts[h].together);
    berth_json_begin(w, "devices", '[');
    for (int i = 0; i < c->n_devices; i++) {
        if (c->devices[i].host == h) {
            device_write(w, &c->devices[i]);
        }
    }
    berth_json_end(w);
    berth_json_end(w);
}

void cluster_write(const struct cluster *c, FILE *file) {
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_line(&w, 2);
    berth_json_begin(&w, "hosts", '[');
    for (int h = 0; h < c->n_hosts; h++) {
        host_write(&w, c, h);
    }
    berth_json_end(&w);
    berth_json_line(&w, 2);
    berth_json_begin(&w, "links", '[');
    for (int l = 0; l < c->n_links; l++) {
        const struct cluster_link *link = &c->links[l];
        berth_json_line(&w, 4);
        berth_json_begin(&w, NULL, '{');
        if (link->a >= 0) {
            berth_json_printf(&w, "'between': [%s, %s]", c->hosts[link->a].name, c->hosts[link->b].name);
        }
        berth_json_printf(&w, "'latency': %.3g, 'bandwidth': %.4g", link->latency, link->bandwidth);
        berth_json_end(&w);
    }
    berth_json_end(&w);
    berth_json_line(&w, 0);
    berth_json_end(&w);
    fputc('\n', file);
}
