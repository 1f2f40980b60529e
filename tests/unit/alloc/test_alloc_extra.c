// SPDX-License-Identifier: MIT
// test_alloc_extra.c: additions of berth-alloc.h to the graph allocator: reports, checks that detect planted errors, saved plans,
// several graphs in one arena, captured graphs.

#include "support/cpu.h"

#include "core/graph.h"
#include "ggml-alloc.h"

#include <dirent.h>
#include <unistd.h>

static int setup(void **state) {
    (void) state;
    berth_clear_error();
    return 0;
}

struct chain {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *a, *b, *c, *out;
};

// Builds x -> a -> b, c = a * b and c -> out. All tensors have 64 floats.
static struct chain chain_new(void) {
    struct chain k = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true})};
    k.graph = ggml_new_graph_custom(k.ctx, 32, false);
    k.x = ggml_set_name(ggml_new_tensor_1d(k.ctx, GGML_TYPE_F32, 64), "x");
    k.a = ggml_set_name(ggml_cont(k.ctx, k.x), "a");
    k.b = ggml_set_name(ggml_cont(k.ctx, k.a), "b");
    k.c = ggml_set_name(ggml_mul(k.ctx, k.a, k.b), "c");
    k.out = ggml_set_name(ggml_cont(k.ctx, k.c), "out");
    ggml_set_output(k.out);
    ggml_build_forward_expand(k.graph, k.out);
    return k;
}

static void fill(struct ggml_tensor *t) {
    for (int i = 0; i < 64; i++) {
        ((float *) t->data)[i] = (float) (i + 1);
    }
}

static void assert_squares(const struct ggml_tensor *t) {
    for (int i = 0; i < 64; i++) {
        assert_float_equal(((float *) t->data)[i], (i + 1) * (i + 1), 0);
    }
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

// ---- checks ----

static void planted_overlap_is_caught(void **state) {
    (void) state;
    struct chain k = chain_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("has no memory");
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_true(berth_gallocr_verify(galloc, k.graph));
    fill(k.x);
    assert_int_equal(berth_gallocr_compute_checked(galloc, k.graph, cpu, ggml_backend_graph_compute), GGML_STATUS_SUCCESS);
    assert_squares(k.out);

    void *right = k.b->data;
    k.b->data = k.a->data; // b is written while a is still needed
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("overlap in memory and lifetime");
    fill(k.x);
    assert_int_equal(berth_gallocr_compute_checked(galloc, k.graph, cpu, ggml_backend_graph_compute), GGML_STATUS_FAILED);
    assert_error("wrote into the memory of a");
    k.b->data = right;
    void *out = k.out->data;
    k.out->data = k.c->data; // c, which took over the memory of a source, is alive longer than the source
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("overlap in memory and lifetime");
    k.out->data = out;
    assert_true(berth_gallocr_verify(galloc, k.graph));
    k.b->data = (char *) right + (right == ggml_backend_buffer_get_base(k.b->buffer) ? 4 : -4);
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("aligned");
    k.b->data = (char *) right + (1 << 20);
    assert_false(berth_gallocr_verify(galloc, k.graph));
    assert_error("is not inside its buffer");
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph)); // restores the address
    assert_ptr_equal(k.b->data, right);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// What observe_and_compute has seen. n_fresh is the number of the results a, b and out that were 0xFF in every byte before their
// node ran. n_dead is the number of times that x held a fill value when b ran. At that time x is dead, because a is the last
// reader of x. The fill value is 0xFF if b has the memory of x, otherwise 0xDF.
static struct {
    const struct chain *k;
    bool reads_dead; // out is computed from x, which is dead
    int n_fresh, n_dead;
} seen;

static bool is_all(const struct ggml_tensor *t, uint8_t value) {
    const uint8_t *p = t->data;
    for (size_t i = 0; i < ggml_nbytes(t); i++) {
        if (p[i] != value) {
            return false;
        }
    }
    return true;
}

static enum ggml_status observe_and_compute(ggml_backend_t backend, struct ggml_cgraph *one) {
    const struct chain *k = seen.k;
    struct ggml_tensor *node = one->nodes[0];
    if (node == k->a || node == k->b || node == k->out) {
        seen.n_fresh += is_all(node, 0xFF);
    }
    if (node == k->b) {
        seen.n_dead += is_all(k->x, k->b->data == k->x->data ? 0xFF : 0xDF);
    }
    if (node == k->out && seen.reads_dead) {
        memmove(node->data, k->x->data, ggml_nbytes(node));
        return GGML_STATUS_SUCCESS;
    }
    return ggml_backend_graph_compute(backend, one);
}

static void fill_shows_stale_reads(void **state) {
    (void) state;
    // A kernel that reads memory before it is written or after it is freed sees the fill value, not old bytes.
    for (int reads_dead = 0; reads_dead < 2; reads_dead++) {
        struct chain k = chain_new();
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
        fill(k.x);
        seen.k = &k;
        seen.reads_dead = reads_dead == 1;
        seen.n_fresh = seen.n_dead = 0;
        assert_int_equal(berth_gallocr_compute_checked(galloc, k.graph, cpu, observe_and_compute), GGML_STATUS_SUCCESS);
        assert_int_equal(seen.n_fresh, 3);
        assert_int_equal(seen.n_dead, 1);
        if (reads_dead) {
            for (int i = 0; i < 64; i++) {
                assert_true(((float *) k.out->data)[i] != (float) ((i + 1) * (i + 1)));
            }
        } else {
            assert_squares(k.out);
        }
        ggml_gallocr_free(galloc);
        ggml_free(k.ctx);
    }
}

// ---- reports ----

static void alive_at_the_peak(void **state) {
    (void) state;
    struct chain k = chain_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    struct berth_plan_report report;
    struct berth_gallocr_live live[8];
    assert_int_equal(berth_gallocr_report(galloc, 0, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, -1, live, 8), -1);
    assert_true(ggml_gallocr_reserve(galloc, k.graph));
    assert_int_equal(berth_gallocr_report(galloc, 0, &report), GGML_STATUS_SUCCESS);
    assert_int_equal(report.peak, 512);
    assert_int_equal(report.bound, 512);
    assert_true(report.proven);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, -1, live, 8), 2);
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, 1, live, 8), 2);
    assert_true((live[0].tensor == k.a && live[1].tensor == k.b) || (live[0].tensor == k.b && live[1].tensor == k.a));
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, 3, live, 8), 2);
    assert_true(live[0].tensor == k.c || live[1].tensor == k.c); // c took over the memory of a or b
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// ---- saved plans ----

static void saved_plans_are_loaded(void **state) {
    (void) state;
    struct chain k = chain_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_gallocr_save(galloc, k.graph, file), GGML_STATUS_FAILED);
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_int_equal(berth_gallocr_save(galloc, k.graph, file), GGML_STATUS_SUCCESS);
    fclose(file);
    assert_non_null(strstr(text, "{\"name\": \"c\", \"op\": \"MUL\", \"type\": \"f32\", \"shape\": [64, 1, 1, 1], \"node\": 2"));
    assert_non_null(strstr(text, "\"node\": 0, \"uses\": \"1 2\"")); // a
    assert_non_null(strstr(text, "\"node\": 1, \"uses\": \"2\""));   // b
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_json(text, size, "saved", &set), GGML_STATUS_SUCCESS);
    assert_int_equal(set->peak, 512);
    assert_true(set->has_offsets);

    struct chain again = chain_new();
    ggml_gallocr_t galloc_2 = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_int_equal(berth_gallocr_load(galloc_2, again.graph, NULL, NULL, set), GGML_STATUS_SUCCESS);
    struct berth_plan_report report;
    assert_int_equal(berth_gallocr_report(galloc_2, 0, &report), GGML_STATUS_SUCCESS);
    assert_string_equal(report.method, "loaded");
    assert_int_equal(report.peak, 512);
    assert_true(ggml_gallocr_alloc_graph(galloc_2, again.graph));
    assert_int_equal((char *) again.b->data - (char *) again.a->data, (char *) k.b->data - (char *) k.a->data);
    assert_true(berth_gallocr_verify(galloc_2, again.graph));

    const uint64_t right = set->offsets[1];
    set->offsets[1] = set->offsets[0];
    assert_int_equal(berth_gallocr_load(galloc_2, again.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    set->offsets[1] = right;
    set->items[1].last++;
    assert_int_equal(berth_gallocr_load(galloc_2, again.graph, NULL, NULL, set), GGML_STATUS_FAILED);
    assert_error("belongs to another graph");
    assert_true(ggml_gallocr_alloc_graph(galloc_2, again.graph)); // the earlier plan is still valid
    berth_plan_set_free(set);
    free(text);
    ggml_gallocr_free(galloc);
    ggml_gallocr_free(galloc_2);
    ggml_free(k.ctx);
    ggml_free(again.ctx);
}

// ---- an old plan for a smaller graph ----

// Builds p = 2x, q = 3y, r = p + q and out = p * r. x has four rows, y has as many or one.
static struct ggml_cgraph *sum_new(struct ggml_context *ctx, int64_t n, int64_t rows_y) {
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, 4), *y = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, rows_y);
    struct ggml_tensor *p = ggml_scale(ctx, x, 2), *q = ggml_scale(ctx, y, 3), *r = ggml_add(ctx, p, q);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 32, false);
    ggml_set_output(r);
    ggml_build_forward_expand(graph, ggml_mul(ctx, p, r));
    return graph;
}

// In the reserved graph, r takes over the memory of q. In the smaller graph it must not, because each row of r reads the only row
// of q.
static void smaller_graph_with_a_repeated_row(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_cgraph *large = sum_new(ctx, 64, 4), *small = sum_new(ctx, 32, 1), *plain = sum_new(ctx, 32, 4);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_reserve(galloc, large));
    assert_true(ggml_gallocr_alloc_graph(galloc, plain) && berth_gallocr_verify(galloc, plain));
    struct ggml_tensor *sum = ggml_graph_node(plain, 2);
    assert_true(sum->op == GGML_OP_ADD && sum->data == sum->src[1]->data);
    assert_true(ggml_gallocr_alloc_graph(galloc, small) && berth_gallocr_verify(galloc, small));
    sum = ggml_graph_node(small, 2);
    assert_ptr_not_equal(sum->data, sum->src[1]->data);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// ---- time of planning ----

static void custom_unused(struct ggml_tensor *dst, int ith, int nth, void *user) {
    (void) dst, (void) ith, (void) nth, (void) user;
}

// Builds nodes of random sizes. Each reads two of the 20 nodes before it.
static struct ggml_cgraph *random_graph(struct ggml_context *ctx, struct check_rng *rng) {
    enum { N = 150, BACK = 20 };
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 2 * N, false);
    struct ggml_tensor *t[BACK + N];
    for (int i = 0; i < BACK + N; i++) {
        const int64_t n = 8 + 8 * (int64_t) check_rng_below(rng, 40);
        if (i < BACK) {
            t[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
            continue;
        }
        struct ggml_tensor *src[] = {t[i - 1 - (int) check_rng_below(rng, BACK)], t[i - 1 - (int) check_rng_below(rng, BACK)]};
        t[i] = ggml_custom_4d(ctx, GGML_TYPE_F32, n, 1, 1, 1, src, 2, custom_unused, 1, NULL);
        ggml_build_forward_expand(graph, t[i]);
    }
    return graph;
}

// Without a time limit, a graph is planned with the fastest methods only. For some graphs, the other methods find a lower peak.
static void plans_are_brief_without_a_time_limit(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(1);
    int n_lower = 0;
    for (int k = 0; k < 40; k++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true});
        struct ggml_cgraph *graph = random_graph(ctx, &rng);
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_reserve(galloc, graph));
        char *text = NULL;
        size_t size = 0;
        FILE *file = open_memstream(&text, &size);
        assert_int_equal(berth_gallocr_save(galloc, graph, file), GGML_STATUS_SUCCESS);
        fclose(file);
        struct berth_plan_set *set;
        assert_int_equal(berth_plan_read_json(text, size, "saved", &set), GGML_STATUS_SUCCESS);
        struct berth_plan_report of_galloc, brief, full;
        struct berth_plan_params params = {.is_brief = true};
        assert_int_equal(berth_gallocr_report(galloc, 0, &of_galloc), GGML_STATUS_SUCCESS);
        assert_int_equal(berth_plan_solve(set->items, set->n_items, &params, set->offsets, &brief), GGML_STATUS_SUCCESS);
        params.is_brief = false;
        assert_int_equal(berth_plan_solve(set->items, set->n_items, &params, set->offsets, &full), GGML_STATUS_SUCCESS);
        assert_int_equal(of_galloc.peak, brief.peak);
        assert_string_equal(of_galloc.method, brief.method);
        n_lower += full.peak < brief.peak;
        berth_plan_set_free(set);
        free(text);
        ggml_gallocr_free(galloc);
        ggml_free(ctx);
    }
    print_message("%d of 40 peaks are lower with all methods\n", n_lower);
    assert_true(n_lower > 0);
}

// ---- several graphs in one arena ----

static void alternating_graphs_share_an_arena(void **state) {
    (void) state;
    struct chain first = chain_new();
    // The second graph reads a result of the first one.
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_cgraph *second = ggml_new_graph_custom(ctx, 32, false);
    struct ggml_tensor *y = ggml_cont(ctx, ggml_scale(ctx, first.c, 2));
    // c is a node of the first graph; here it is only read.
    struct ggml_tensor *z = ggml_set_name(ggml_cont(ctx, y), "z");
    ggml_set_output(z);
    struct ggml_tensor *c_was[GGML_MAX_SRC];
    const enum ggml_op c_op = first.c->op;
    memcpy(c_was, first.c->src, sizeof c_was);
    // For the second graph, c is a leaf without sources. c is restored after the second graph is built.
    memset(first.c->src, 0, sizeof c_was);
    first.c->op = GGML_OP_NONE;
    ggml_build_forward_expand(second, z);
    first.c->op = c_op;
    memcpy(first.c->src, c_was, sizeof c_was);

    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_backend_buffer_t kept = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), ggml_nbytes(first.c));
    assert_int_equal(ggml_backend_tensor_alloc(kept, first.c, ggml_backend_buffer_get_base(kept)), GGML_STATUS_SUCCESS);
    assert_true(ggml_gallocr_reserve(galloc, first.graph) && ggml_gallocr_reserve(galloc, second));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 2 * 256); // two tensors in addition to c in each graph
    for (int k = 0; k < 3; k++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, first.graph));
        assert_true(berth_gallocr_verify(galloc, first.graph));
        void *at = first.c->data;
        fill(first.x);
        assert_int_equal(ggml_backend_graph_compute(cpu, first.graph), GGML_STATUS_SUCCESS);
        assert_true(ggml_gallocr_alloc_graph(galloc, second));
        assert_ptr_equal(first.c->data, at);
        assert_int_equal(ggml_backend_graph_compute(cpu, second), GGML_STATUS_SUCCESS);
        assert_squares(first.c); // still valid
        assert_float_equal(((float *) z->data)[7], 128, 0);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(kept);
    ggml_free(first.ctx);
    ggml_free(ctx);
}

// ---- capture ----

static int count_files(const char *dir, const char *end) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const size_t len = strlen(e->d_name), m = strlen(end);
        n += e->d_name[0] != '.' && len > m && strcmp(e->d_name + len - m, end) == 0;
    }
    closedir(d);
    return n;
}

// This function replaces secure_getenv of the C library, which returns NULL in a setuid program.
static bool is_setuid;
__attribute__((visibility("default"))) char *secure_getenv(const char *name) {
    return is_setuid ? NULL : getenv(name);
}

static void graphs_are_captured_once(void **state) {
    (void) state;
    char dir[] = "/tmp/berth-capture-XXXXXX";
    assert_non_null(mkdtemp(dir));
    setenv("BERTH_CAPTURE", dir, 1);
    is_setuid = true;
    struct chain s = chain_new();
    ggml_gallocr_t setuid = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(setuid, s.graph));
    assert_int_equal(count_files(dir, ".ggraph"), 0);
    ggml_gallocr_free(setuid);
    ggml_free(s.ctx);
    is_setuid = false;
    for (int k = 0; k < 3; k++) {
        struct chain c = chain_new();
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_alloc_graph(galloc, c.graph));
        assert_true(ggml_gallocr_reserve(galloc, c.graph));
        ggml_gallocr_free(galloc);
        ggml_free(c.ctx);
    }
    assert_int_equal(count_files(dir, ".ggraph"), 1);
    setenv("BERTH_CAPTURE", "/no/such/folder", 1);
    struct chain c = chain_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, c.graph)); // the program continues
    ggml_gallocr_free(galloc);
    ggml_free(c.ctx);
    unsetenv("BERTH_CAPTURE");
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            unlink(path);
        }
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0); // no unfinished file is left
}

// The rows of a captured graph: nodes in their order, then leafs, with the addresses of the plan.
static void captured_rows(void **state) {
    (void) state;
    static const char want[] = "counts nodes=3 leafs=2 other=0 bufs=1\n"
                               "buf 0 CPU align=32 max=18446744073709551615 same_as=0 ggml_size=512\n"
                               "columns id kind op type ne nb nbytes alloc_size view_src view_offs flags ext buf ggml_chunk "
                               "ggml_offset srcs name item life\n"
                               "0 N ADD f32 64,1,1,1 4,256,256,256 256 256 -1 0 - 0 0 0 0 3,4 a 0 -\n"
                               "1 N VIEW f32 64,1,1,1 4,256,256,256 256 256 4 0 - 0 0 -1 -1 4 view -1 -\n"
                               "2 N MUL f32 64,1,1,1 4,256,256,256 256 256 -1 0 o 0 0 0 0 0,1 b 0 -\n"
                               "3 L NONE f32 64,1,1,1 4,256,256,256 256 256 -1 0 - 0 0 0 0 - x 0 0,2,256,0\n"
                               "4 L NONE f32 64,1,1,1 4,256,256,256 256 256 -1 0 - 0 0 0 256 - y 1 0,2,256,0\n";
    char dir[] = "/tmp/berth-capture-XXXXXX", path[512] = "", text[4096] = "";
    assert_non_null(mkdtemp(dir));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    struct ggml_tensor *x = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64), "x");
    struct ggml_tensor *y = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64), "y");
    struct ggml_tensor *view = ggml_set_name(ggml_view_1d(ctx, y, 64, 0), "view");
    struct ggml_tensor *b = ggml_set_name(ggml_mul(ctx, ggml_set_name(ggml_add(ctx, x, y), "a"), view), "b");
    ggml_set_output(b);
    ggml_build_forward_expand(graph, b);
    setenv("BERTH_CAPTURE", dir, 1);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    unsetenv("BERTH_CAPTURE");
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        }
    }
    closedir(d);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    rmdir(dir);
    const char *rows = strstr(text, "counts ");
    assert_non_null(rows);
    assert_string_equal(rows, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(planted_overlap_is_caught, setup),
        cmocka_unit_test_setup(fill_shows_stale_reads, setup),
        cmocka_unit_test_setup(alive_at_the_peak, setup),
        cmocka_unit_test_setup(saved_plans_are_loaded, setup),
        cmocka_unit_test_setup(smaller_graph_with_a_repeated_row, setup),
        cmocka_unit_test_setup(plans_are_brief_without_a_time_limit, setup),
        cmocka_unit_test_setup(alternating_graphs_share_an_arena, setup),
        cmocka_unit_test_setup(captured_rows, setup), // first: after an error, nothing is captured
        cmocka_unit_test_setup(graphs_are_captured_once, setup),
    };
    return cmocka_run_group_tests_name("alloc_extra", tests, cpu_open, cpu_close);
}
