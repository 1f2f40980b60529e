// SPDX-License-Identifier: MIT
// rope.c: cases of op/rope.c: every mode, forward and backward, YaRN, frequency factors, offsets, negative and very large
// positions.

#include "op.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

// Parameters of ggml_rope_ext.
struct scaling {
    int n_ctx_orig;
    float base, scale, ext, attn, fast, slow;
};

static const struct scaling scalings[] = {
    {0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f},
    {4096, 1e6f, 0.25f, 1.0f, 1.0f, 32.0f, 1.0f},
    {512, 10000.0f, 0.5f, 0.7f, 1.3f, 16.0f, 2.0f},
    {8192, 500000.0f, 1.0f, 0.0f, 0.5f, 0.0f, 0.0f},
};

enum { DENSE, HOLES, PERMUTED, INPLACE, SPECIALS };

struct rope {
    bool back, factors;
    int mode, n_dims, layout;
    enum ggml_type type;
    int64_t ne[4];
    int first, n_pos; // positions are in [first, first + n_pos)
    const struct scaling *s;
    int sections[4];
    int n_offs;
};

static struct ggml_tensor *with_offset(const struct rope *c, struct ggml_tensor *t) {
    return c->n_offs != 0 ? ggml_rope_set_offset(t, c->n_offs) : t;
}

static struct ggml_tensor *build_rope(struct op_build *b, const void *arg) {
    const struct rope *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int64_t *ne = c->ne;
    const bool multi = (c->mode & GGML_ROPE_TYPE_MROPE) != 0;
    struct ggml_tensor *a = c->layout == HOLES ? op_input_holes(b, c->type, ne)
                            : c->layout == PERMUTED
                                ? ggml_permute(ctx, op_input(b, c->type, NE(ne[0], ne[2], ne[1], ne[3])), 0, 2, 1, 3)
                                : op_input(b, c->type, ne);
    struct ggml_tensor *pos = op_indices(b, GGML_TYPE_I32, NE(ne[2] * (multi ? 4 : 1), 1, 1, 1), c->n_pos, false);
    for (int64_t i = 0; i < ggml_nelements(pos); i++) {
        *(int32_t *) op_at(pos, i) += c->first;
    }
    struct ggml_tensor *factors = c->factors ? op_input_range(b, GGML_TYPE_F32, NE(ne[0] / 2 + 1, 1, 1, 1), 0.5f, 2.0f) : NULL;
    if (c->layout == SPECIALS) {
        op_with_specials(a);
    }
    const struct scaling *s = c->s;
    int sections[4] = {c->sections[0], c->sections[1], c->sections[2], c->sections[3]};
    const int n = c->n_dims;
    if (multi) {
        return with_offset(c, (c->back                   ? ggml_rope_multi_back
                                  : c->layout == INPLACE ? ggml_rope_multi_inplace
                                                         : ggml_rope_multi)(ctx, a, pos, factors, n, sections, c->mode,
                                  s->n_ctx_orig, s->base, s->scale, s->ext, s->attn, s->fast, s->slow));
    }
    return with_offset(c, (c->back                   ? ggml_rope_ext_back
                              : c->layout == INPLACE ? ggml_rope_ext_inplace
                                                     : ggml_rope_ext)(ctx, a, pos, factors, n, c->mode, s->n_ctx_orig, s->base,
                              s->scale, s->ext, s->attn, s->fast, s->slow));
}

static const int modes[] = {
    GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX, GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_VISION, GGML_ROPE_TYPE_IMROPE};

// Sets the sections of M-RoPE so that they cover all pairs.
static void sections_of(struct rope *c) {
    const int half = c->n_dims / 2, third = half / 3;
    const int plain[4] = {half / 4, third, third, half - half / 4 - 2 * third};
    const int vision[4] = {half, c->n_dims - half, 0, 0};
    const int inter[4] = {half - 2 * third, third, third, 0};
    for (int i = 0; i < 4; i++) {
        c->sections[i] = c->mode == GGML_ROPE_TYPE_VISION ? vision[i] : c->mode == GGML_ROPE_TYPE_IMROPE ? inter[i] : plain[i];
    }
}

static const char *name_of(const struct rope *c) {
    return c->back ? "ROPE_BACK" : "ROPE";
}

// Two roundings to f16 may differ by one unit.
static double tolerance(const struct rope *c) {
    return c->type == GGML_TYPE_F16 ? 1e-6 : OP_F32;
}

static void mode_cases(struct op_suite *s, int mode, bool back) {
    const bool vision = mode == GGML_ROPE_TYPE_VISION;
    for (size_t i = 0; i < N(scalings); i++) {
        for (int half = 0; half < 2; half++) {
            for (int factors = 0; factors < 2; factors++) {
                struct rope c = {.back = back,
                    .factors = factors,
                    .mode = mode,
                    .n_dims = 24,
                    .s = &scalings[i],
                    .type = half ? GGML_TYPE_F16 : GGML_TYPE_F32,
                    .ne = {vision    ? 48
                           : factors ? 36
                                     : 24,
                        3, 5, 2},
                    .n_pos = i == 3 ? 100000 : 300};
                sections_of(&c);
                op_case(s, name_of(&c), op_text("mode %d scaling %zu half %d factors %d", mode, i, half, factors), tolerance(&c),
                    build_rope, &c);
            }
        }
    }
    for (int layout = DENSE; layout <= SPECIALS; layout++) {
        for (int half = 0; half < (layout == SPECIALS ? 1 : 2); half++) {
            struct rope c = {.back = back,
                .mode = mode,
                .n_dims = 10,
                .layout = layout,
                .s = &scalings[layout % 3],
                .type = half ? GGML_TYPE_F16 : GGML_TYPE_F32,
                .ne = {vision ? 20 : 31, 4, 7, 2},
                .first = -50,
                .n_pos = 3000};
            sections_of(&c);
            op_case(s, name_of(&c), op_text("mode %d layout %d half %d", mode, layout, half), tolerance(&c), build_rope, &c);
        }
    }
    struct rope c = {
        .back = back, .mode = mode, .n_dims = vision ? 64 : 128, .s = &scalings[1], .ne = {128, 32, 40, 1}, .n_pos = 4000};
    sections_of(&c);
    op_case(s, name_of(&c), op_text("mode %d large", mode), OP_F32, build_rope, &c);
}

static void offset_cases(struct op_suite *s, int mode, bool back) {
    static const int offsets[] = {2, 8, 14, 40};
    for (size_t i = 0; i < N(offsets); i++) {
        for (int layout = DENSE; layout <= INPLACE; layout++) {
            for (int factors = 0; factors < 2; factors++) {
                struct rope c = {.back = back,
                    .factors = factors,
                    .mode = mode,
                    .n_dims = 24,
                    .layout = layout,
                    .s = &scalings[i],
                    .type = layout == HOLES ? GGML_TYPE_F16 : GGML_TYPE_F32,
                    .ne = {64, 3, 5, 2},
                    .n_pos = 300,
                    .n_offs = offsets[i]};
                sections_of(&c);
                op_case(s, name_of(&c), op_text("mode %d offset %d layout %d factors %d", mode, c.n_offs, layout, factors),
                    tolerance(&c), build_rope, &c);
            }
        }
    }
}

static void section_cases(struct op_suite *s) {
    static const int sections[][4] = {
        {1, 0, 0, 0}, {2, 3, 4, 0}, {4, 4, 4, 0}, {4, 4, 4, 4}, {0, 4, 4, 0}, {12, 12, 0, 0}, {1, 1, 1, 1}, {0, 0, 5, 3}};
    for (size_t i = 0; i < N(sections); i++) {
        for (size_t m = 2; m < N(modes); m++) {
            struct rope c = {.mode = modes[m],
                .n_dims = modes[m] == GGML_ROPE_TYPE_VISION ? 12 : 24,
                .s = &scalings[0],
                .ne = {24, 2, 3, 1},
                .n_pos = 99,
                .sections = {sections[i][0], sections[i][1], sections[i][2], sections[i][3]}};
            op_case(s, "ROPE", op_text("mode %d sections %zu", modes[m], i), OP_F32, build_rope, &c);
        }
    }
}

void op_suite_rope(struct op_suite *s) {
    for (int back = 0; back < 2; back++) {
        for (size_t m = 0; m < N(modes); m++) {
            mode_cases(s, modes[m], back);
            if (modes[m] != GGML_ROPE_TYPE_VISION) {
                offset_cases(s, modes[m], back);
            }
        }
    }
    section_cases(s);
}
