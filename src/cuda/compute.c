// SPDX-License-Identifier: MIT
// compute.c: enqueues a graph on the stream. The first compute of a plan launches its steps separately. The second compute
// captures the steps into a CUDA graph, which later computes launch. A captured graph contains the address of the arena, so
// cuda_arena_grow destroys all captured graphs.

#include "cuda/backend.h"

#include <string.h>

static void *arena_take(struct cuda_backend *b, size_t size) {
    return cuda_memory_take(b->dev, size, "work memory");
}

bool cuda_arena_grow(struct cuda_backend *b, size_t size) {
    if (size <= b->arena_size) {
        return true;
    }
    const struct cuda_driver *cu = b->dev->cu;
    const CUresult rc = cu->StreamSynchronize(b->stream); // running kernels still use the old arena
    if (rc != CUDA_SUCCESS) {
        cuda_fail(b->dev, rc, "waiting before enlarging the work memory");
        return false;
    }
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        if (b->execs[i].exec != NULL) {
            cu->GraphExecDestroy(b->execs[i].exec);
            b->execs[i].exec = NULL;
        }
        b->plans.plans[i].n_runs = 0;
    }
    cuda_memory_give_back(b->dev, b->arena);
    b->arena = arena_take(b, size);
    if (b->arena != NULL) {
        b->arena_size = size;
        return true;
    }
    if (b->arena_size > 0) { // graphs that fitted before must still fit
        b->arena = arena_take(b, b->arena_size);
        if (b->arena == NULL) {
            b->arena_size = 0;
        }
    }
    return false;
}

// *has_clusters: a launched kernel has clusters.
static enum ggml_status steps_run(
    struct cuda_backend *b, const struct gpu_plan *plan, const struct ggml_cgraph *graph, bool *has_clusters) {
    struct cuda_run r = {
        .gpu = {.dev = &b->dev->gpu, .graph = graph, .work = b->arena, .work_size = b->arena_size},
        .stream = b->stream,
        .has_gap = true,
    };
    const enum ggml_status status = gpu_steps_run(&r.gpu, plan);
    b->n_launched += r.n_launches;
    *has_clusters = r.has_clusters;
    return status;
}

// Updates the existing executable graph if the driver can. Otherwise instantiates a new executable graph. The update of a kernel
// to one with other clusters succeeds, but the updated kernel does nothing (driver 580). So such graphs are never updated.
static CUresult exec_make(struct cuda_backend *b, struct cuda_exec *exec, CUgraph graph, bool has_clusters) {
    const struct cuda_driver *cu = b->dev->cu;
    if (exec->exec != NULL) {
        CUgraphExecUpdateResultInfo info;
        memset(&info, 0, sizeof info);
        const bool can_update = cu->GraphExecUpdate != NULL && !exec->has_clusters && !has_clusters;
        if (can_update && cu->GraphExecUpdate(exec->exec, graph, &info) == CUDA_SUCCESS) {
            b->n_updated++;
            return CUDA_SUCCESS;
        }
        CUresult rc = cu->StreamSynchronize(b->stream);
        cu->GraphExecDestroy(exec->exec);
        exec->exec = NULL;
        if (rc != CUDA_SUCCESS) {
            return rc;
        }
    }
    b->n_captured++;
    exec->has_clusters = has_clusters;
    return cu->GraphInstantiate(&exec->exec, graph, 0);
}

static struct cuda_exec *exec_of(struct cuda_backend *b, const struct gpu_plan *plan) {
    return &b->execs[plan - b->plans.plans];
}

static enum ggml_status plan_capture(struct cuda_backend *b, struct gpu_plan *plan, const struct ggml_cgraph *graph) {
    struct cuda_exec *exec = exec_of(b, plan);
    const struct cuda_driver *cu = b->dev->cu;
    CUgraph captured = NULL;
    CUresult rc = cu->StreamBeginCapture(b->stream, CU_CAPTURE_RELAXED);
    if (rc != CUDA_SUCCESS) {
        return cuda_fail(b->dev, rc, "starting the capture of a graph");
    }
    bool has_clusters;
    const enum ggml_status status = steps_run(b, plan, graph, &has_clusters);
    rc = cu->StreamEndCapture(b->stream, &captured);
    if (status != GGML_STATUS_SUCCESS) {
        rc = CUDA_SUCCESS; // the error of the steps is reported instead
    } else if (rc == CUDA_SUCCESS) {
        rc = exec_make(b, exec, captured, has_clusters);
    }
    if (captured != NULL) {
        cu->GraphDestroy(captured);
    }
    if (rc != CUDA_SUCCESS) {
        if (exec->exec != NULL) {
            cu->GraphExecDestroy(exec->exec);
            exec->exec = NULL;
        }
        return cuda_fail(b->dev, rc, "capturing a graph of %d nodes", graph->n_nodes);
    }
    return status;
}

static enum ggml_status plan_replay(struct cuda_backend *b, const struct gpu_plan *plan) {
    const CUresult rc = b->dev->cu->GraphLaunch(exec_of(b, plan)->exec, b->stream);
    b->n_replayed++;
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS : cuda_fail(b->dev, rc, "replaying a graph");
}

enum ggml_status cuda_compute(struct cuda_backend *b, const struct ggml_cgraph *graph) {
    enum ggml_status status = cuda_device_enter(b->dev);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct gpu_plan *plan;
    status = gpu_compute_begin(&b->plans, graph, &plan);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!cuda_arena_grow(b, plan->work_size)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    plan->n_runs++;
    bool has_clusters;
    if (plan->n_steps < 2 || b->no_graphs || plan->n_runs < 2) {
        return steps_run(b, plan, graph, &has_clusters);
    }
    if (plan->n_runs == 2) {
        status = plan_capture(b, plan, graph);
        if (status != GGML_STATUS_SUCCESS && !atomic_load(&b->dev->is_lost)) {
            b->no_graphs = true; // launched separately, a failing step reports its own error
            return steps_run(b, plan, graph, &has_clusters);
        }
    }
    return status == GGML_STATUS_SUCCESS ? plan_replay(b, plan) : status;
}
