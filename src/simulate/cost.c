// SPDX-License-Identifier: MIT
// cost.c: what an op takes on a device: what it reads, what it multiplies, and a little for being one. docs/scale.md.

#include "simulate/cluster.h"

static double later(double a, double b) {
    return a > b ? a : b;
}

static double by(double amount, double special, double usual) {
    return amount / (special > 0 ? special : usual);
}

// The part of the experts that is read: each token chooses so many of all.
static double part_read(const struct ggml_tensor *t) {
    if (t->op != GGML_OP_MUL_MAT_ID || t->src[2] == NULL) {
        return 1;
    }
    const double n = (double) t->src[0]->ne[2], chosen = (double) ggml_nelements(t->src[2]);
    return chosen < n ? chosen / n : 1;
}

static double product_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    const struct ggml_tensor *w = t->src[0];
    const double bytes = (double) ggml_nbytes(w) * part_read(t);
    const double operations = 2 * (double) w->ne[0] * (double) ggml_nelements(t);
    const double reading = by(bytes, d->read[w->type], d->bandwidth), work = by(operations, d->product[w->type], d->flops);
    return later(reading, work);
}

static double attention_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    const struct ggml_tensor *q = t->src[0], *k = t->src[1], *v = t->src[2];
    const double bytes = (double) ggml_row_size(k->type, ggml_nelements(k)) + (double) ggml_row_size(v->type, ggml_nelements(v));
    const double operations = 2 * (double) (q->ne[0] + v->ne[0]) * (double) k->ne[1] * (double) (q->ne[1] * q->ne[2] * q->ne[3]);
    return later(by(bytes, d->attend_read, d->bandwidth), by(operations, d->attend, d->flops));
}

// What goes in and comes out. Rows that are taken or put are as many as the smaller of the two.
static double small_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    double bytes = (double) ggml_nbytes(t);
    if (t->op == GGML_OP_GET_ROWS || t->op == GGML_OP_SET_ROWS || t->op == GGML_OP_CPY) {
        const double other = t->src[0] != NULL ? (double) ggml_nbytes(t->src[0]) : bytes;
        bytes = 2 * (other < bytes ? other : bytes);
    } else {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            bytes += t->src[k] != NULL ? (double) ggml_nbytes(t->src[k]) : 0;
        }
    }
    return bytes / d->bandwidth;
}

double cluster_op_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    switch (t->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return 0;
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID: return product_seconds(d, t);
        case GGML_OP_FLASH_ATTN_EXT: return d->op + attention_seconds(d, t);
        default: return d->op + small_seconds(d, t);
    }
}
