// A C++17 program that takes every public header and the owning pointers.
#include "berth.h"
#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"
#include "ggml-opt.h"
#include "ggml.h"
#include "gguf.h"

int main() {
    ggml_context_ptr ctx(ggml_init({1 << 16, nullptr, true}));
    ggml_tensor * t = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, 16);
    GGML_ASSERT(ggml_nelements(t) == 16);
    return GGML_PAD(13, 8) == 16 ? 0 : 1;
}
