// SPDX-License-Identifier: MIT
// validate.c: does a row hold what its type can mean? No NaN and no infinity in floats, nor in the scales of blocks.
// One row of the table below for each type says where its scales are. A type without a row cannot be in a file (q8_1) or is none.
#include "base/base.h"
#include "quant/blocks.h"
#include "quant/half.h"

#include <float.h>
#include <math.h>

enum scale { NONE, HALF, BF16, SINGLE, DOUBLE, E8M0, SPLIT_HALF };

struct layout {
    size_t size;      // of a block; 0: not in the table
    enum scale scale; // how its scales are written
    int n;            // how many, side by side
    size_t off;       // of the first
};

#define LAYOUT(block, field, scale, n) \
    { sizeof(block), scale, n, offsetof(block, field) }

static const struct layout layouts[GGML_TYPE_COUNT] = {
    [GGML_TYPE_F32]     = {4, SINGLE, 1, 0},
    [GGML_TYPE_F64]     = {8, DOUBLE, 1, 0},
    [GGML_TYPE_F16]     = {2, HALF, 1, 0},
    [GGML_TYPE_BF16]    = {2, BF16, 1, 0},
    [GGML_TYPE_I8]      = {1, NONE, 0, 0},
    [GGML_TYPE_I16]     = {2, NONE, 0, 0},
    [GGML_TYPE_I32]     = {4, NONE, 0, 0},
    [GGML_TYPE_I64]     = {8, NONE, 0, 0},
    [GGML_TYPE_Q1_0]    = LAYOUT(block_q1_0, d, HALF, 1),
    [GGML_TYPE_Q2_0]    = LAYOUT(block_q2_0, d, HALF, 1),
    [GGML_TYPE_Q4_0]    = LAYOUT(block_q4_0, d, HALF, 1),
    [GGML_TYPE_Q4_1]    = LAYOUT(block_q4_1, d, HALF, 2),
    [GGML_TYPE_Q5_0]    = LAYOUT(block_q5_0, d, HALF, 1),
    [GGML_TYPE_Q5_1]    = LAYOUT(block_q5_1, d, HALF, 2),
    [GGML_TYPE_Q8_0]    = LAYOUT(block_q8_0, d, HALF, 1),
    [GGML_TYPE_TQ1_0]   = LAYOUT(block_tq1_0, d, HALF, 1),
    [GGML_TYPE_TQ2_0]   = LAYOUT(block_tq2_0, d, HALF, 1),
    [GGML_TYPE_MXFP4]   = LAYOUT(block_mxfp4, e, E8M0, 1),
    [GGML_TYPE_NVFP4]   = {sizeof(block_nvfp4), NONE, 0, 0}, // every code of its scales is a number
    [GGML_TYPE_Q2_K]    = LAYOUT(block_q2_K, d, HALF, 2),
    [GGML_TYPE_Q3_K]    = LAYOUT(block_q3_K, d, HALF, 1),
    [GGML_TYPE_Q4_K]    = LAYOUT(block_q4_K, d, HALF, 2),
    [GGML_TYPE_Q5_K]    = LAYOUT(block_q5_K, d, HALF, 2),
    [GGML_TYPE_Q6_K]    = LAYOUT(block_q6_K, d, HALF, 1),
    [GGML_TYPE_Q8_K]    = LAYOUT(block_q8_K, d, SINGLE, 1),
    [GGML_TYPE_IQ1_S]   = LAYOUT(block_iq1_s, d, HALF, 1),
    [GGML_TYPE_IQ1_M]   = LAYOUT(block_iq1_m, scales, SPLIT_HALF, 1),
    [GGML_TYPE_IQ2_XXS] = LAYOUT(block_iq2_xxs, d, HALF, 1),
    [GGML_TYPE_IQ2_XS]  = LAYOUT(block_iq2_xs, d, HALF, 1),
    [GGML_TYPE_IQ2_S]   = LAYOUT(block_iq2_s, d, HALF, 1),
    [GGML_TYPE_IQ3_XXS] = LAYOUT(block_iq3_xxs, d, HALF, 1),
    [GGML_TYPE_IQ3_S]   = LAYOUT(block_iq3_s, d, HALF, 1),
    [GGML_TYPE_IQ4_NL]  = LAYOUT(block_iq4_nl, d, HALF, 1),
    [GGML_TYPE_IQ4_XS]  = LAYOUT(block_iq4_xs, d, HALF, 1),
};

static const uint8_t scale_size[] = {
    [NONE] = 0, [HALF] = 2, [BF16] = 2, [SINGLE] = 4, [DOUBLE] = 8, [E8M0] = 1, [SPLIT_HALF] = 8};

static bool is_sound(const uint8_t *p, enum scale scale) {
    uint16_t h = 0;
    uint32_t s;
    double d;
    switch (scale) {
        case HALF: memcpy(&h, p, sizeof(h)); return (h & 0x7c00) != 0x7c00;
        case BF16: memcpy(&h, p, sizeof(h)); return (h & 0x7f80) != 0x7f80;
        case SINGLE: memcpy(&s, p, sizeof(s)); return (s & 0x7f800000) != 0x7f800000;
        case DOUBLE: memcpy(&d, p, sizeof(d)); return fabs(d) <= FLT_MAX; // as a float would be
        case E8M0: return *p != 0xff;
        case SPLIT_HALF: return (p[7] & 0x70) != 0x70 || (p[5] & 0xc0) != 0xc0; // upper nibbles of four words, lowest first
        default: return true;
    }
}

bool ggml_validate_row_data(enum ggml_type type, const void *data, size_t nbytes) {
    if ((int) type < 0 || type >= GGML_TYPE_COUNT || layouts[type].size == 0) {
        (void) berth_fail(GGML_STATUS_FAILED, "ggml_validate_row_data: type %d has no rows to check", (int) type);
        return false;
    }
    const struct layout *l = &layouts[type];
    if (nbytes % l->size != 0 || (data == NULL && nbytes > 0)) {
        (void) berth_fail(GGML_STATUS_FAILED, "ggml_validate_row_data: %zu bytes%s, a block of type %d has %zu", nbytes,
            data == NULL ? " at NULL" : "", (int) type, l->size);
        return false;
    }
    if (l->scale == NONE) {
        return true;
    }
    for (size_t i = 0; i < nbytes / l->size; i++) {
        const uint8_t *p = (const uint8_t *) data + i * l->size + l->off;
        for (int k = 0; k < l->n; k++, p += scale_size[l->scale]) {
            if (!is_sound(p, l->scale)) {
                (void) berth_fail(GGML_STATUS_FAILED,
                    "ggml_validate_row_data: block %zu of type %d: its scale is NaN or infinite", i, (int) type);
                return false;
            }
        }
    }
    return true;
}
