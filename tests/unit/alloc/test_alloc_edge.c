// SPDX-License-Identifier: MIT
// test_alloc_edge.c: all functions of berth-alloc.h over two memory types, one with small buffers and an odd alignment, with each
// allocation failing in turn; calls with missing arguments; plans of other graphs; tensors whose addresses were changed.

#include "support/check.h"

#include "core/graph.h"
#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <dirent.h>
#include <unistd.h>

static ggml_backend_t cpu;
static struct ggml_backend_buffer_type narrow, twin; // host memory under two other buffer types

static size_t align_48(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 48; // not a power of two
}

static size_t align_none(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 0;
}

static size_t size_of_two(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 2 * 256 + 96;
}

static const char *no_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return NULL;
}

static int open_all(void **state) {
    (void) state;
    check_quiet();
    cpu = ggml_backend_cpu_init();
    narrow = *ggml_backend_cpu_buffer_type();
    narrow.iface.get_alignment = align_48;
    narrow.iface.get_max_size = size_of_two;
    narrow.iface.get_name = no_name;
    twin = *ggml_backend_cpu_buffer_type();
    twin.iface.get_alignment = align_none;
    ggml_backend_cpu_set_n_threads(cpu, 1);
    return cpu == NULL;
}

static int close_all(void **state) {
    (void) state;
    ggml_backend_free(cpu);
    return 0;
}

static int setup(void **state) {
    (void) state;
    berth_clear_error();
    return 0;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

#define N_STEPS 12

struct net {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *view, *middle, *out;
    int node_ids[64], leaf_ids[64];
};

// Builds a chain of sums from x to out. Each sum adds the results of one and of four steps before, some of them through views.
// Pairs of nodes alternate between the two memory types.
static struct net net_new(int64_t n) {
    struct net k = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true})};
    if (k.ctx == NULL) {
        return k;
    }
    k.graph = ggml_new_graph_custom(k.ctx, 64, false);
    k.x = ggml_set_name(ggml_new_tensor_1d(k.ctx, GGML_TYPE_F32, n), "x");
    struct ggml_tensor *t[N_STEPS + 4] = {k.x, k.x, k.x, k.x};
    ggml_set_input(k.x);
    for (int i = 4; i < N_STEPS + 4; i++) {
        struct ggml_tensor *old = i % 3 == 0 ? ggml_view_1d(k.ctx, t[i - 4], n, 0) : t[i - 4];
        k.view = i == 9 ? old : k.view;
        t[i] = ggml_add(k.ctx, t[i - 1], old);
    }
    k.middle = t[9];
    k.out = ggml_set_name(ggml_cont(k.ctx, t[N_STEPS + 3]), "out");
    ggml_set_output(k.out);
    ggml_build_forward_expand(k.graph, k.out);
    for (int i = 0; i < 64; i++) {
        k.node_ids[i] = i / 2 % 2;
    }
    return k;
}

static ggml_gallocr_t two_memories(void) {
    ggml_backend_buffer_type_t types[] = {&twin, &narrow};
    return ggml_gallocr_new_n(types, 2);
}

static void fill(struct ggml_tensor *t) {
    for (int64_t i = 0; i < t->ne[0]; i++) {
        ((float *) t->data)[i] = (float) (i + 1);
    }
}

static void forget(struct net *k) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(k->ctx); t != NULL; t = ggml_get_next_tensor(k->ctx, t)) {
        t->data = NULL, t->buffer = NULL;
    }
}

// Uses an allocator from its creation to its end: reserves, places, checks and computes graph k, reports, saves and loads its
// plan, then places the other graph. Returns false if a call failed.
static bool one_life(struct net *k, struct net *other) {
    ggml_gallocr_t galloc = two_memories();
    size_t sizes[2] = {0};
    bool ok = berth_gallocr_sizes(galloc, k->graph, k->node_ids, k->leaf_ids, sizes) == GGML_STATUS_SUCCESS && sizes[0] > 0;
    ok = ok && ggml_gallocr_reserve_n(galloc, k->graph, k->node_ids, k->leaf_ids) && ggml_gallocr_alloc_graph(galloc, k->graph);
    ok = ok && berth_gallocr_verify(galloc, k->graph);
    if (ok) {
        fill(k->x);
        ok = berth_gallocr_compute_checked(galloc, k->graph, cpu, ggml_backend_graph_compute) == GGML_STATUS_SUCCESS;
    }
    if (ok) {
        assert_float_equal(((float *) k->out->data)[3] / ((float *) k->out->data)[0], 4, 0);
    }
    struct berth_gallocr_live live[8];
    ok = ok && berth_gallocr_live(galloc, k->graph, 1, -1, live, 8) > 0;
    struct berth_plan_report report;
    ok = ok && berth_gallocr_report(galloc, 1, &report) == GGML_STATUS_SUCCESS;
    char *text = NULL;
    size_t size = 0;
    FILE *file = ok ? open_memstream(&text, &size) : NULL;
    ok = file != NULL && berth_gallocr_save(galloc, k->graph, file) == GGML_STATUS_SUCCESS && ok;
    if (file != NULL) {
        fclose(file);
    }
    struct berth_plan_set *set = NULL;
    ok = ok && berth_plan_read_json(text, size, "saved", &set) == GGML_STATUS_SUCCESS;
    forget(k); // the tensors lose their memory
    ggml_gallocr_t again = ok ? two_memories() : NULL;
    ok = ok && berth_gallocr_load(again, k->graph, k->node_ids, k->leaf_ids, set) == GGML_STATUS_SUCCESS;
    ok = ok && ggml_gallocr_reserve_n(again, other->graph, other->node_ids, other->leaf_ids) &&
         ggml_gallocr_alloc_graph(again, other->graph) && berth_gallocr_verify(again, other->graph);
    berth_plan_set_free(set);
    free(text);
    ggml_gallocr_free(galloc);
    ggml_gallocr_free(again);
    return ok;
}

static void lives_with_each_allocation_failing(void **state) {
    (void) state;
    struct net k = net_new(64), other = net_new(32);
    int64_t n_made = 0;
    int n_refused = 0;
    for (int64_t n = 0; n <= n_made; n++) { // n = 0: no allocation fails
        berth_clear_error();
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const bool ok = one_life(&k, &other);
        berth_alloc_fail_at(0);
        n_made = n == 0 ? berth_alloc_made() : n_made;
        if (berth_alloc_alive() != 0) {
            fail_msg("%d allocations leak when allocation %d fails", (int) berth_alloc_alive(), (int) n);
        }
        berth_alloc_watch(false);
        assert_true(ok || (n > 0 && berth_last_error()[0] != '\0'));
        n_refused += !ok;
        forget(&k);
        forget(&other);
    }
    print_message("%d allocations, each failed once; %d of these failures caused an error\n", (int) n_made, n_refused);
    assert_true(n_refused > 50);
    ggml_free(k.ctx);
    ggml_free(other.ctx);
}

static void calls_with_missing_arguments(void **state) {
    (void) state;
    struct net k = net_new(64);
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    size_t size;
    struct berth_plan_report report;
    berth_gallocr_set_params(NULL, NULL);
    berth_gallocr_set_params(galloc, NULL);
    assert_int_equal(berth_gallocr_sizes(galloc, k.graph, NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_sizes(NULL, k.graph, NULL, NULL, &size), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_report(galloc, 0, &report), GGML_STATUS_FAILED); // nothing was planned
    assert_int_equal(berth_gallocr_report(galloc, 0, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_report(NULL, 0, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_live(NULL, k.graph, 0, 0, NULL, 0), -1);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, 0, NULL, 0), -1);
    assert_false(berth_gallocr_verify(NULL, k.graph) || berth_gallocr_verify(galloc, NULL));
    assert_int_equal(berth_gallocr_compute_checked(galloc, k.graph, cpu, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_compute_checked(NULL, k.graph, cpu, ggml_backend_graph_compute), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_save(galloc, k.graph, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_load(NULL, k.graph, NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_int_equal(berth_gallocr_report(galloc, 1, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_report(galloc, -1, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 1, 0, NULL, 0), -1);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, -1, 0, NULL, 0), -1);
    const int64_t n_live = berth_gallocr_live(galloc, k.graph, 0, 3, NULL, 9); // only counts
    struct berth_gallocr_live live[2];
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, 3, live, 2), n_live);
    assert_true(n_live > 2 && live[0].size >= live[1].size);
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, -1), 0);
    ggml_backend_buffer_type_t types[] = {&twin, NULL};
    assert_null(ggml_gallocr_new_n(types, 2));
    assert_null(ggml_gallocr_new_n(types, -1));
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

static void plans_of_other_graphs(void **state) {
    (void) state;
    struct net k = net_new(64), wide = net_new(4096);
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_gallocr_save(galloc, k.graph, file), GGML_STATUS_SUCCESS);
    fclose(file);
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_json(text, size, "saved", &set), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_gallocr_load(galloc, wide.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    assert_error("another graph");
    struct berth_plan_item *item = &set->items[1];
    const struct berth_plan_item was = *item;
    item->first++;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    *item = was, item->align *= 2;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    *item = was, item->pool++;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    *item = was;
    set->n_items--;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    assert_error("items, this graph has");
    set->n_items++;
    set->has_offsets = false;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    assert_error("has no offsets");
    set->has_offsets = true;
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_SUCCESS);
    const int ids[64] = {0, 3};
    assert_int_equal(berth_gallocr_load(galloc, k.graph, ids, NULL, set), GGML_STATUS_FAILED);
    if (access("/dev/full", W_OK) == 0) {
        FILE *full = fopen("/dev/full", "w");
        assert_int_equal(berth_gallocr_save(galloc, k.graph, full), GGML_STATUS_FAILED);
        assert_error("cannot save the plan");
        fclose(full);
    }
    berth_plan_set_free(set);
    free(text);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
    ggml_free(wide.ctx);
}

// An empty graph has an empty plan. The plan can be saved and loaded.
static void plan_of_an_empty_graph(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4, false);
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    assert_true(ggml_gallocr_reserve(galloc, graph) && ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_gallocr_save(galloc, graph, file), GGML_STATUS_SUCCESS);
    fclose(file);
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_json(text, size, "saved", &set), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_gallocr_load(galloc, graph, NULL, NULL, set), GGML_STATUS_SUCCESS);
    struct berth_plan_report report;
    assert_int_equal(berth_gallocr_report(galloc, 0, &report), GGML_STATUS_SUCCESS);
    assert_int_equal(report.peak, 0);
    berth_plan_set_free(set);
    free(text);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void changed_addresses(void **state) {
    (void) state;
    struct net k = net_new(64);
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    assert_false(berth_gallocr_verify(galloc, k.graph)); // never placed
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_true(berth_gallocr_verify(galloc, k.graph));
    char *const at = k.middle->data, *const of_view = k.view->data;
    k.middle->data = at + (1 << 20);
    assert_false(berth_gallocr_verify(galloc, k.graph));
    k.middle->data = (char *) ggml_backend_buffer_get_base(k.middle->buffer) - 64;
    assert_false(berth_gallocr_verify(galloc, k.graph));
    k.middle->data = at;
    k.view->data = of_view + 4;
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("is not in its source");
    k.view->data = of_view;
    assert_true(berth_gallocr_verify(galloc, k.graph));
    k.middle->data = NULL;
    assert_false(berth_gallocr_verify(galloc, k.graph));
    k.middle->data = at;
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// More graphs than the allocator keeps: the oldest plans are dropped and made again later.
static void many_graphs(void **state) {
    (void) state;
    enum { N_NETS = 80 };
    static struct net nets[N_NETS];
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_NETS; i++) {
            if (round == 0) {
                nets[i] = net_new(16 + 16 * (N_NETS - i));
            }
            assert_true(ggml_gallocr_reserve(galloc, nets[i].graph));
            assert_true(ggml_gallocr_alloc_graph(galloc, nets[i].graph));
            assert_true(berth_gallocr_verify(galloc, nets[i].graph));
        }
    }
    for (int i = 0; i < N_NETS; i++) {
        ggml_free(nets[i].ctx);
    }
    ggml_gallocr_free(galloc);
}

static void captures_without_memory(void **state) {
    (void) state;
    char dir[] = "/tmp/berth-capture-XXXXXX";
    assert_non_null(mkdtemp(dir));
    setenv("BERTH_CAPTURE", dir, 1);
    struct net k = net_new(64);
    bool is_over = false;
    for (int n = 1; !is_over; n++) {
        assert_true(n < 200);
        ggml_gallocr_t galloc = two_memories();
        berth_clear_error();
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const bool ok = ggml_gallocr_reserve_n(galloc, k.graph, k.node_ids, k.leaf_ids);
        is_over = berth_alloc_made() < n - 1; // the failed allocation is not counted
        berth_alloc_fail_at(0);
        berth_alloc_watch(false);
        assert_true(ok || berth_last_error()[0] != '\0');
        ggml_gallocr_free(galloc);
    }
    unsetenv("BERTH_CAPTURE");
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(dir);
    ggml_free(k.ctx);
}

// Returns the bytes of all buffers in the first captured graph of the folder, and removes the folder.
static size_t captured_size(const char *dir) {
    size_t size = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512], line[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *file = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            const char *at = strncmp(line, "buf 0 ", 6) == 0 ? strstr(line, "ggml_size=") : NULL;
            if (at != NULL) {
                size = strtoull(at + 10, NULL, 10);
            }
        }
        if (file != NULL) {
            fclose(file);
            unlink(path);
        }
    }
    closedir(d);
    rmdir(dir);
    return size;
}

// Builds the sum of n inputs, each of which fills a buffer of the narrow type. All inputs are alive before the first node.
static struct ggml_cgraph *wide_sum(struct ggml_context *ctx, int n) {
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    struct ggml_tensor *sum = NULL;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 150);
        ggml_set_input(x);
        sum = sum == NULL ? x : ggml_add(ctx, sum, x);
    }
    ggml_set_output(sum);
    ggml_build_forward_expand(graph, sum);
    return graph;
}

// The lists of buffers have as many elements as the first graph has buffers. A graph of other buffers follows.
static void as_many_buffers_as_a_list_holds(void **state) {
    (void) state;
    char dir[] = "/tmp/berth-capture-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true});
    struct ggml_cgraph *many = wide_sum(ctx, 12), *few = wide_sum(ctx, 3);
    struct net large = net_new(400);
    setenv("BERTH_CAPTURE", dir, 1);
    ggml_gallocr_t galloc = ggml_gallocr_new(&narrow);
    assert_true(ggml_gallocr_reserve(galloc, many));
    unsetenv("BERTH_CAPTURE");
    assert_int_equal(captured_size(dir), 12 * 624); // 600 bytes, rounded up to a multiple of 48
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 12 * 624);
    assert_true(ggml_gallocr_alloc_graph(galloc, many) && berth_gallocr_verify(galloc, many));
    assert_true(ggml_gallocr_reserve(galloc, large.graph)); // needs fewer buffers, which are larger
    assert_true(ggml_gallocr_alloc_graph(galloc, large.graph) && berth_gallocr_verify(galloc, large.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, few) && berth_gallocr_verify(galloc, few));
    assert_true(ggml_gallocr_alloc_graph(galloc, many) && berth_gallocr_verify(galloc, many));
    ggml_gallocr_free(galloc);
    ggml_free(large.ctx);
    ggml_free(ctx);
}

struct comparison {
    int last;    // the comparison ends at this node
    int n_calls; // nodes that were compared
};

static bool compare_until(int i, struct ggml_tensor *a, struct ggml_tensor *b, void *user) {
    struct comparison *c = user;
    assert_memory_equal(a->data, b->data, ggml_nbytes(a));
    c->n_calls++;
    return i < c->last;
}

static enum ggml_status no_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend, (void) graph;
    return GGML_STATUS_FAILED;
}

static void comparison_of_backends(void **state) {
    (void) state;
    struct net k = net_new(64);
    ggml_gallocr_t galloc = ggml_gallocr_new(&twin);
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    fill(k.x);
    int n_computed = 0;
    for (int i = 0; i < k.graph->n_nodes; i++) {
        n_computed += k.graph->nodes[i]->op != GGML_OP_VIEW;
    }
    assert_true(k.graph->nodes[0]->op != GGML_OP_VIEW && n_computed < k.graph->n_nodes);
    struct comparison c = {.last = 1000};
    assert_true(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, NULL, 0));
    assert_int_equal(c.n_calls, n_computed);
    c = (struct comparison){0};
    assert_true(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, NULL, 0));
    assert_int_equal(c.n_calls, 1);
    const struct ggml_tensor *some[] = {k.middle, k.out};
    c = (struct comparison){.last = 1000};
    assert_true(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, some, 2));
    assert_int_equal(c.n_calls, 2);
    c = (struct comparison){0};
    assert_true(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, some, 2));
    assert_int_equal(c.n_calls, 1);
    assert_false(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, NULL, NULL, NULL, 0));
    assert_false(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, NULL, 2));
    struct ggml_tensor *const uncopied[] = {k.middle, k.view};
    for (int i = 0; i < 2; i++) {
        uncopied[i]->type = GGML_TYPE_COUNT;
        assert_null(ggml_backend_graph_copy(cpu, k.graph).graph);
        assert_error("is not a tensor type");
        assert_false(ggml_backend_compare_graph_backend(cpu, cpu, k.graph, compare_until, &c, NULL, 0));
        uncopied[i]->type = GGML_TYPE_F32;
    }
    struct ggml_backend broken = *cpu;
    broken.iface.graph_compute = no_compute;
    c.last = 1000;
    assert_false(ggml_backend_compare_graph_backend(cpu, &broken, k.graph, compare_until, &c, NULL, 0));
    assert_false(ggml_backend_compare_graph_backend(&broken, cpu, k.graph, compare_until, &c, some, 2));
    assert_int_equal(berth_gallocr_compute_checked(galloc, k.graph, cpu, no_compute), GGML_STATUS_FAILED);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

static size_t size_of_all(ggml_backend_buffer_type_t buft, const struct ggml_tensor *t) {
    (void) buft, (void) t;
    return SIZE_MAX;
}

// A size that does not fit into 64 bits after it is rounded up to the alignment.
static void tensor_beyond_the_address_space(void **state) {
    (void) state;
    struct net k = net_new(64);
    struct ggml_backend_buffer_type endless = twin;
    endless.iface.get_alignment = align_48;
    endless.iface.get_alloc_size = size_of_all;
    ggml_gallocr_t galloc = ggml_gallocr_new(&endless);
    assert_false(ggml_gallocr_reserve(galloc, k.graph));
    assert_error("out of memory for the lifetimes");
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// The bytes of a context are summed per buffer and over all buffers. Neither sum may wrap.
static void contexts_beyond_the_address_space(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const size_t size = (size_t) 1 << 62, padded = size + 32; // the next multiple of 48
    for (size_t n = 1; n <= 4; n++) {
        assert_non_null(ggml_new_tensor_1d(ctx, GGML_TYPE_I8, (int64_t) size));
        assert_true(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, &narrow) == (n < 4 ? n * padded : SIZE_MAX));
        assert_true(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, &twin) == (n < 4 ? n * size : SIZE_MAX));
    }
    ggml_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lives_with_each_allocation_failing, setup),
        cmocka_unit_test_setup(calls_with_missing_arguments, setup),
        cmocka_unit_test_setup(plans_of_other_graphs, setup),
        cmocka_unit_test_setup(plan_of_an_empty_graph, setup),
        cmocka_unit_test_setup(changed_addresses, setup),
        cmocka_unit_test_setup(many_graphs, setup),
        cmocka_unit_test_setup(as_many_buffers_as_a_list_holds, setup), // first: after an error, nothing is captured
        cmocka_unit_test_setup(captures_without_memory, setup),
        cmocka_unit_test_setup(comparison_of_backends, setup),
        cmocka_unit_test_setup(tensor_beyond_the_address_space, setup),
        cmocka_unit_test_setup(contexts_beyond_the_address_space, setup),
    };
    return cmocka_run_group_tests_name("alloc_odd", tests, open_all, close_all);
}
