// SPDX-License-Identifier: MIT
// gguf.c: src/gguf/source.c with a buffer, a callback and a file, from any position.

#include "tools/prove/eva/eva.h"

#include "src/gguf/source.c"

#define EVA_BYTES 8

static unsigned char eva_bytes[EVA_BYTES], eva_out[EVA_BYTES];

enum ggml_status berth_fail(enum ggml_status status, const char *fmt, ...) {
    return status;
}

// A callback that may return any number. All numbers above EVA_BYTES are above the size, so one of them is enough
static size_t eva_callback(void *user, void *out, uint64_t offset, size_t size) {
    //@ check eva_text: size <= EVA_BYTES && \valid((char *) out + (0 .. size - 1));
    Frama_C_make_unknown(out, size);
    return (size_t) Frama_C_interval_split(0, EVA_BYTES + 1);
}

static void eva_calls(struct gguf_source *s) {
    (void) berth_gguf_source_holds(s, EVA_ANY_U64(), Frama_C_unsigned_long_interval(1, UINT64_MAX), "elements");
    const size_t size = (size_t) Frama_C_interval_split(0, EVA_BYTES);
    (void) berth_gguf_source_read(s, eva_out, size, "value");
}

int main(void) {
    struct gguf_source s;
    berth_gguf_source_buffer(&s, eva_bytes, EVA_BYTES);
    s.at = (uint64_t) Frama_C_interval_split(0, EVA_BYTES);
    eva_calls(&s);
    berth_gguf_source_callback(&s, eva_callback, NULL, EVA_ANY_U64(), EVA_ANY_U64());
    s.at = EVA_ANY_U64();
    eva_calls(&s);
    (void) berth_gguf_source_seek(&s, EVA_ANY_U64());
    FILE *file = fopen("any.gguf", "rb");
    if (file != NULL) {
        berth_gguf_source_file(&s, file, "any.gguf");
        (void) berth_gguf_source_seek(&s, EVA_ANY_U64());
        s.at = EVA_ANY_U64();
        eva_calls(&s);
    }
    return 0;
}
