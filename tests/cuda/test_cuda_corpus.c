// SPDX-License-Identifier: MIT
// test_cuda_corpus.c: checks that the CUDA backend supports every op of the graphs captured from language models, stable
// diffusion and whisper, so that no op falls back to the CPU. The test runs the host side on a simulated driver (standin.h). The
// captured graphs have shapes, types and strides but no op parameters. set_params computes parameters from the shapes, or sets
// usual values. The test searches the folder `graphs` in $BERTH_DATA, ../shared and build/data (tools/graphs.sh), and is skipped
// if there is none.

#include "standin_load.h"

#include "capture/ggraph.h"
#include "cuda/device.h"
#include "ggml-cuda.h"
#include "support/check.h"

#include <dirent.h>
#include <unistd.h>

static char folder[1024];
static ggml_backend_dev_t dev;

static bool find_folder(void) {
    const char *data = getenv("BERTH_DATA");
    const char *places[] = {data != NULL ? data : "", "../shared", "build/data"};
    for (int i = 0; i < 3; i++) {
        snprintf(folder, sizeof folder, "%s/graphs", places[i]);
        if (places[i][0] != '\0' && access(folder, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

// Sets the op parameters for which 0 would be invalid: from the shapes, or to usual values.
static void set_params(struct ggml_tensor *node) {
    int32_t *p = node->op_params;
    switch (node->op) {
        case GGML_OP_CONCAT:
            for (int i = 0; i < GGML_MAX_DIMS; i++) {
                p[0] = node->ne[i] != node->src[0]->ne[i] || node->src[1]->ne[i] == 0 ? i : p[0];
            }
            break;
        case GGML_OP_PAD:
            for (int i = 0; i < GGML_MAX_DIMS; i++) {
                p[2 * i + 1] = (int32_t) (node->ne[i] - node->src[0]->ne[i]);
            }
            break;
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: p[1] = (int32_t) node->ne[0]; break;
        case GGML_OP_GROUP_NORM: p[0] = 32; break;
        case GGML_OP_TIMESTEP_EMBEDDING:
            p[0] = (int32_t) node->ne[0];
            p[1] = 10000;
            break;
        case GGML_OP_IM2COL: // strides, padding, dilation; whether it is two-dimensional
            p[0] = p[1] = p[4] = p[5] = 1;
            p[6] = node->src[1]->ne[2] * node->src[0]->ne[0] * node->src[0]->ne[1] == node->ne[0];
            break;
        case GGML_OP_IM2COL_3D: // strides, padding, dilation, channels
            p[0] = p[1] = p[2] = p[6] = p[7] = p[8] = 1;
            p[9] = (int32_t) (node->ne[0] / (node->src[0]->ne[0] * node->src[0]->ne[1] * node->src[0]->ne[2]));
            break;
        case GGML_OP_POOL_1D:
        case GGML_OP_POOL_2D:
        case GGML_OP_CONV_TRANSPOSE_1D:
            for (int i = 0; i < 6; i++) {
                p[i] = 1;
            }
            break;
        default: break;
    }
}

static int n_nodes, n_unsupported;
static enum ggml_op last_refused;

static void check_graph(const char *path) {
    struct ggraph g;
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS) {
        fail_msg("%s: %s", path, berth_last_error());
    }
    for (int i = 0; i < ggml_graph_n_nodes(g.graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(g.graph, i);
        set_params(node);
        n_nodes++;
        if (!ggml_backend_dev_supports_op(dev, node)) {
            if (n_unsupported++ < 40 || node->op != last_refused) {
                last_refused = node->op;
                printf("%s: node %d, %s of %s [%lld %lld %lld %lld]", path, i, ggml_op_name(node->op), ggml_type_name(node->type),
                    (long long) node->ne[0], (long long) node->ne[1], (long long) node->ne[2], (long long) node->ne[3]);
                for (int s = 0; s < GGML_MAX_SRC && node->src[s] != NULL; s++) {
                    const struct ggml_tensor *src = node->src[s];
                    printf(", %s [%lld %lld %lld %lld]", ggml_type_name(src->type), (long long) src->ne[0],
                        (long long) src->ne[1], (long long) src->ne[2], (long long) src->ne[3]);
                }
                printf("\n");
            }
        }
    }
    ggraph_free(&g);
}

static void every_op_is_supported(void **state) {
    (void) state;
    static const char *const groups[] = {"llama", "arch", "sd", "whisper"};
    if (!find_folder()) {
        printf("skipped: no captured graphs in $BERTH_DATA/graphs, ../shared/graphs or build/data/graphs (tools/graphs.sh)\n");
        skip();
    }
    dev = ggml_backend_reg_dev_get(ggml_backend_cuda_reg(), 0);
    assert_non_null(dev);
    for (int i = 0; i < 4; i++) {
        char path[1400];
        snprintf(path, sizeof path, "%s/%s", folder, groups[i]);
        DIR *d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
            if (strstr(e->d_name, ".ggraph") != NULL) {
                snprintf(path, sizeof path, "%s/%s/%s", folder, groups[i], e->d_name);
                check_graph(path);
            }
        }
        closedir(d);
    }
    printf("%d nodes, %d of them unsupported\n", n_nodes, n_unsupported);
    assert_true(n_nodes > 0);
    assert_int_equal(n_unsupported, 0);
}

int main(void) {
    struct standin_functions f;
    if (!standin_load(&f)) {
        return 1;
    }
    f.reset();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_is_supported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
