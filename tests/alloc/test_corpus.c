// SPDX-License-Identifier: MIT
// test_corpus.c: the allocator plans graphs that were captured from released programs. No plan is larger than ggml's, almost all
// are at the lower bound, and each takes a few milliseconds. The test prints a table by group. The graphs are in a folder `graphs`
// with an index.csv: in $BERTH_DATA, next to the repository (../shared), or in the folder of tools/graphs.sh (build/data: `make
// corpus`). Without them only a captured graph of this program is tested.

#include "support/check.h"

#include "berth-alloc.h"
#include "capture/ggraph.h"
#include "core/graph.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#define N_GROUPS_MAX 16

struct group {
    char name[32];
    int n, n_larger, n_at_bound, n_slow;
    double ggml, plain, wide, bound, bound_wide;
    double ms_worst;
};

static struct group groups[N_GROUPS_MAX];
static int n_groups;
static char folder[1024];

static bool find_folder(void) {
    const char *data = getenv("BERTH_DATA");
    char path[1100];
    const char *places[] = {data != NULL ? data : "", "../shared", "build/data"};
    for (int i = 0; i < 3; i++) {
        snprintf(folder, sizeof folder, "%s/graphs", places[i]);
        snprintf(path, sizeof path, "%s/index.csv", folder);
        if (places[i][0] != '\0' && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}

// An in_place callback that also allows ops which the reference does not run in place, if the CPU kernels allow it.
static bool wide(const struct ggml_tensor *node, int i_src, void *user) {
    switch (node->op) {
        case GGML_OP_NORM:
        case GGML_OP_GROUP_NORM:
        case GGML_OP_L2_NORM:
        case GGML_OP_CLAMP:
        case GGML_OP_LEAKY_RELU:
        case GGML_OP_TRI:
        case GGML_OP_CUMSUM:
        case GGML_OP_SIN:
        case GGML_OP_COS: return true;
        case GGML_OP_GLU: return node->src[1] != NULL;
        default: return ggraph_in_place(node, i_src, user);
    }
}

static double sum_sizes(struct ggraph *g, berth_inplace_t in_place, bool via_views, double *ms) {
    ggml_backend_buffer_type_t types[64];
    size_t sizes[64];
    assert_true(g->n_bufs <= 64);
    ggraph_bufts(g, types);
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, g->n_bufs);
    struct berth_gallocr_params o = berth_gallocr_params_default();
    o.inplace_via_views = via_views;
    o.inplace = in_place;
    o.inplace_user_data = g;
    berth_gallocr_set_params(galloc, &o);
    const double start = now_ms();
    assert_int_equal(berth_gallocr_sizes(galloc, g->graph, g->node_bufs, g->leaf_bufs, sizes), GGML_STATUS_SUCCESS);
    *ms = now_ms() - start;
    double sum = 0;
    for (int i = 0; i < g->n_bufs; i++) {
        sum += (double) sizes[i];
    }
    ggml_gallocr_free(galloc);
    return sum;
}

static struct group *group_of(const char *name) {
    for (int i = 0; i < n_groups; i++) {
        if (strcmp(groups[i].name, name) == 0) {
            return &groups[i];
        }
    }
    assert_true(n_groups < N_GROUPS_MAX);
    snprintf(groups[n_groups].name, sizeof groups[0].name, "%s", name);
    return &groups[n_groups++];
}

static void one_graph(const char *group_name, const char *name, double lb, double lb_wide) {
    char path[1400];
    struct ggraph g;
    snprintf(path, sizeof path, "%s/%s/%s.ggraph.gz", folder, group_name, name);
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS) {
        fail_msg("%s: %s", path, berth_last_error());
    }
    double ggml = 0, ms, ms_wide;
    for (int i = 0; i < g.n_bufs; i++) {
        ggml += g.bufs[i].same_as == i ? (double) g.bufs[i].ggml_size : 0;
    }
    const double plain = sum_sizes(&g, ggraph_in_place, false, &ms);
    const double with_wide = sum_sizes(&g, wide, true, &ms_wide);
    struct group *gr = group_of(group_name);
    gr->n++;
    gr->n_larger += plain > ggml || with_wide > ggml;
    gr->n_at_bound += plain <= lb;
    gr->n_slow += ms > 20 || ms_wide > 20;
    gr->ms_worst = ms > gr->ms_worst ? ms : gr->ms_worst;
    gr->ggml += ggml;
    gr->plain += plain;
    gr->wide += with_wide;
    gr->bound += lb;
    gr->bound_wide += lb_wide;
    if (plain > ggml) {
        printf("%s is larger than ggml's: %.0f > %.0f\n", path, plain, ggml);
    }
    ggraph_free(&g);
}

static void print_group(const struct group *g) {
    printf("| %-8s | %4d | %6.4f (bound %6.4f) | %6.4f (bound %6.4f) | %4d | %6.2f |\n", g->name, g->n, g->plain / g->ggml,
        g->bound / g->ggml, g->wide / g->ggml, g->bound_wide / g->ggml, g->n_at_bound, g->ms_worst);
}

static void corpus(void **state) {
    (void) state;
    char path[1100], line[2048];
    if (!find_folder()) {
        printf("skipped: no captured graphs in $BERTH_DATA/graphs, ../shared/graphs or build/data/graphs (tools/graphs.sh)\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/index.csv", folder);
    FILE *index = fopen(path, "r");
    assert_non_null(index);
    assert_non_null(fgets(line, sizeof line, index));
    while (fgets(line, sizeof line, index) != NULL) {
        char group_name[32], name[128];
        double lb, lb_wide;
        // group,name,nodes,leafs,other,bufs,merged,inplace,inplace_via_view,never_freed,inputs_bytes,lb,lb_step,lb_view,lb_wide
        if (sscanf(line, "%31[^,],%127[^,],%*d,%*d,%*d,%*d,%*d,%*d,%*d,%*d,%*d,%lf,%*d,%*d,%lf", group_name, name, &lb,
                &lb_wide) == 4) {
            one_graph(group_name, name, lb, lb_wide);
        }
    }
    fclose(index);
    struct group all = {.name = "all"};
    printf("| graphs   |    n | ggml's in-place rules   | wider in-place rules    | at bound | worst ms |\n");
    for (int i = 0; i < n_groups; i++) {
        const struct group *g = &groups[i];
        print_group(g);
        all.n += g->n;
        all.n_larger += g->n_larger;
        all.n_at_bound += g->n_at_bound;
        all.n_slow += g->n_slow;
        all.ggml += g->ggml;
        all.plain += g->plain;
        all.wide += g->wide;
        all.bound += g->bound;
        all.bound_wide += g->bound_wide;
        all.ms_worst = g->ms_worst > all.ms_worst ? g->ms_worst : all.ms_worst;
    }
    print_group(&all);
    assert_true(all.n > 0);
    assert_int_equal(all.n_larger, 0);
    assert_true(all.plain / all.ggml <= 0.945);
    assert_true(all.wide / all.ggml <= 0.936);
    assert_true(all.n_at_bound >= 0.98 * all.n);
    printf("%d graphs took more than 20 ms of processor time\n", all.n_slow);
    assert_true(BERTH_DEBUG > 0 || all.n_slow <= 0.02 * all.n); // a build with checks is slower
}

// ---- a captured graph is read back with the same plan ----

static void capture_round_trip(void **state) {
    (void) state;
    char dir[] = "/tmp/berth-corpus-XXXXXX", path[512] = "";
    assert_non_null(mkdtemp(dir));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    float theirs[64];
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 8), *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 8);
    ggml_set_name(x, "a name\twith blanks");
    ggml_set_input(x);
    w->data = theirs;
    struct ggml_tensor *y = ggml_silu(ctx, ggml_mul_mat(ctx, w, x)), *v = ggml_view_1d(ctx, y, 16, 64);
    struct ggml_tensor *z = ggml_mul(ctx, ggml_cont(ctx, v), ggml_clamp(ctx, ggml_cont(ctx, v), 0, 1));
    ggml_set_output(z);
    ggml_build_forward_expand(graph, z);
    graph->leafs[graph->n_leafs++] = graph->nodes[0]; // a leaf that is a node
    const int node_ids[64] = {0, 1, 2, 0, 1, 2, 0};
    ggml_backend_buffer_type_t types[3] = {
        ggml_backend_cpu_buffer_type(), ggml_backend_cpu_buffer_type(), ggml_backend_cpu_buffer_type()};
    size_t sizes[3], sizes_again[3];
    setenv("BERTH_CAPTURE", dir, 1);
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 3);
    assert_int_equal(berth_gallocr_sizes(galloc, graph, node_ids, NULL, sizes), GGML_STATUS_SUCCESS);
    unsetenv("BERTH_CAPTURE");
    ggml_gallocr_free(galloc);
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strstr(e->d_name, ".ggraph") != NULL) {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        }
    }
    closedir(d);
    struct ggraph g;
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS) {
        fail_msg("%s: %s", path, berth_last_error());
    }
    assert_int_equal(g.n_bufs, 3);
    assert_int_equal(g.graph->n_nodes, graph->n_nodes);
    assert_int_equal(g.graph->n_leafs, graph->n_leafs);
    ggraph_bufts(&g, types);
    galloc = ggml_gallocr_new_n(types, 3);
    assert_int_equal(berth_gallocr_sizes(galloc, g.graph, g.node_bufs, g.leaf_bufs, sizes_again), GGML_STATUS_SUCCESS);
    assert_memory_equal(sizes, sizes_again, sizeof sizes);
    assert_int_equal(g.bufs[0].ggml_size, sizes[0]);
    ggml_gallocr_free(galloc);
    ggraph_free(&g);
    ggml_free(ctx);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(capture_round_trip)};
    return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}
