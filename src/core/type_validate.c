// SPDX-License-Identifier: MIT
// type_validate.c: checks that float elements and block scales are finite.

#include "core/type.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const uint8_t scale_size[] = {[BERTH_SCALE_HALF] = 2,
    [BERTH_SCALE_BF16] = 2,
    [BERTH_SCALE_SINGLE] = 4,
    [BERTH_SCALE_DOUBLE] = 8,
    [BERTH_SCALE_E8M0] = 1,
    [BERTH_SCALE_SPLIT_HALF] = 8};

static bool is_sound(const uint8_t *p, enum berth_scale scale) {
    uint16_t h = 0;
    uint32_t s;
    double d;
    switch (scale) {
        case BERTH_SCALE_HALF: memcpy(&h, p, sizeof(h)); return (h & 0x7c00) != 0x7c00;
        case BERTH_SCALE_BF16: memcpy(&h, p, sizeof(h)); return (h & 0x7f80) != 0x7f80;
        case BERTH_SCALE_SINGLE: memcpy(&s, p, sizeof(s)); return (s & 0x7f800000) != 0x7f800000;
        case BERTH_SCALE_DOUBLE: memcpy(&d, p, sizeof(d)); return fabs(d) <= FLT_MAX; // must be finite as a float
        case BERTH_SCALE_E8M0: return *p != 0xff;
        case BERTH_SCALE_SPLIT_HALF: return (p[7] & 0x70) != 0x70 || (p[5] & 0xc0) != 0xc0;
        default: return true;
    }
}

bool ggml_validate_row_data(enum ggml_type type, const void *data, size_t nbytes) {
    const struct berth_type_row *row = berth_type_row(type);
    if (row == NULL || row->scale == BERTH_SCALE_UNSTORED) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "ggml_validate_row_data: rows of type %d cannot be checked", (int) type);
    }
    const size_t size = row->traits.type_size;
    if (nbytes % size != 0 || (data == NULL && nbytes > 0)) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED,
            "ggml_validate_row_data: %zu bytes%s: data must not be NULL, and must consist of blocks of type %d, %zu bytes each",
            nbytes, data == NULL ? " at NULL" : "", (int) type, size);
    }
    for (size_t i = 0; row->n_scales > 0 && i < nbytes / size; i++) {
        const uint8_t *p = (const uint8_t *) data + i * size + row->scale_off;
        for (int k = 0; k < row->n_scales; k++, p += scale_size[row->scale]) {
            if (!is_sound(p, row->scale)) {
                return BERTH_FAIL_FALSE(GGML_STATUS_FAILED,
                    "ggml_validate_row_data: block %zu of type %d: its scale is NaN or infinite", i, (int) type);
            }
        }
    }
    return true;
}
