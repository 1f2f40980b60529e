// SPDX-License-Identifier: MIT
// fuzz_admit.c: takes the input as parameters and as a list of requests, ends and steps for src/admit. Every answer must equal
// that of a brute-force computation, the checker must find no error (support/admit_world.h), and a text must explain each
// refusal.

#include "fuzz/bytes.h"
#include "support/admit_world.h"

#define MAX_TURNS 24

static struct admit_params params_read(struct bytes *b) {
    struct admit_params p = {.n_page = 1 + (int64_t) get(b, 1) % 8, .n_pages = 1 + (int64_t) get(b, 1) % 48};
    p.n_ctx = 1 + (int64_t) get(b, 1) % 48;
    p.n_running = 1 + (int) get(b, 1) % 12;
    p.n_batch = p.n_running + (int64_t) get(b, 1) % 32;
    p.n_chunk = (int64_t) get(b, 1) % 9;
    return p;
}

// In most cases, n_cached and n_shared are whole pages within the prompt. In the others they are any numbers.
static struct admit_request request_read(struct bytes *b, const struct admit_params *p) {
    const uint64_t kind = get(b, 1);
    struct admit_request r = {.n_prompt = (int64_t) some_size(b), .n_new = (int64_t) some_size(b)};
    r.n_cached = (int64_t) get(b, 1);
    r.n_shared = (int64_t) get(b, 1);
    r.sharer = (int) get(b, 1) % (p->n_running + 1);
    if (kind < 240 && r.n_prompt > 0) {
        r.n_cached = r.n_cached % ((r.n_prompt - 1) / p->n_page + 1) * p->n_page;
        r.n_shared = r.n_shared % (r.n_cached / p->n_page + 1) * p->n_page;
    }
    return r;
}

static void request_make(struct bytes *b, struct admit_world *w) {
    const struct admit_request r = request_read(b, &w->check.params);
    struct admit_reason why;
    enum admit_status status;
    expect(world_request(w, &r, &status), w->check.error);
    int id;
    if (status != ADMIT_YES) {
        char text[240] = "";
        expect(admit_request(w->a, &r, &id, &why) == status, "the second answer differs");
        expect(admit_explain(&why, text, sizeof text)[0] != '\0' && strlen(text) < sizeof text - 1, "no explanation");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bytes b = {data, data + size};
    const struct admit_params params = params_read(&b);
    struct admit_world w;
    ggml_log_set(quiet, NULL);
    if (!world_init(&w, &params)) {
        expect(false, "no memory, or parameters refused");
    }
    for (int i = 0; i < MAX_TURNS && b.p < b.end; i++) {
        const uint64_t kind = get(&b, 1);
        if (kind < 96) {
            request_make(&b, &w);
        } else if (kind < 128) {
            world_end(&w, (int) (kind % 16) - 1);
        } else {
            for (uint64_t k = 0; k <= kind % 4; k++) {
                expect(world_step(&w), w.check.error);
            }
        }
    }
    world_fini(&w);
    return 0;
}
