// SPDX-License-Identifier: MIT
#include "berth.h"
#include "ggml.h"

int main(void) {
    struct ggml_init_params params = {.mem_size = 1 << 20};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 32);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 8);
    struct ggml_tensor *y = ggml_soft_max(ctx, ggml_mul_mat(ctx, w, x));
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    printf("%d nodes, the last is %s of %lld rows\n", ggml_graph_n_nodes(graph), ggml_op_name(y->op), (long long) y->ne[1]);

    // A mistake does not end the process. A row of w has 64 elements, a row of y has 32, so the result is a poison tensor.
    struct ggml_tensor *bad = ggml_mul_mat(ctx, w, y);
    ggml_build_forward_expand(graph, bad);
    bool fine = berth_graph_check(graph) != GGML_STATUS_SUCCESS && berth_is_poison(bad);
    printf("%s\n", berth_last_error());
    ggml_free(ctx);
    return fine ? 0 : 1;
}
