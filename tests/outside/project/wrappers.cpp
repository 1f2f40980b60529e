// wrappers.cpp: a C++17 program that includes every installed header of ggml and uses the owning pointers.
#include "berth.h"
#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "ggml-opt.h"
#include "ggml.h"
#include "gguf.h"

// Sources for ggml 0.19.0 pass eight arguments.
static bool scans_as_before(ggml_context * ctx) {
    ggml_tensor * s   = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 4, 2, 3, 1);
    ggml_tensor * x   = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 3, 5, 1);
    ggml_tensor * dt  = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 3, 5, 1);
    ggml_tensor * a   = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, 3);
    ggml_tensor * b   = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 4, 1, 5, 1);
    ggml_tensor * ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1);
    ggml_tensor * old = ggml_ssm_scan(ctx, s, x, dt, a, b, b, ids);
    ggml_tensor * now = ggml_ssm_scan(ctx, s, x, dt, a, b, b, ids, 1);
    return !berth_is_poison(old) && ggml_are_same_shape(old, now) && old->op_params[0] == now->op_params[0];
}

int main() {
    ggml_context_ptr ctx(ggml_init({1 << 16, nullptr, true}));
    ggml_tensor * t = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, 16);
    GGML_ASSERT(ggml_nelements(t) == 16);
    GGML_ASSERT(scans_as_before(ctx.get()));
    return GGML_PAD(13, 8) == 16 ? 0 : 1;
}
