// SPDX-License-Identifier: MIT
// cost.c: how long an op takes on a device, from its cost (berth_op_cost) and the device's speeds. docs/scale.md.

#include "simulate/cluster.h"

#include "base/min.h"

static double speed_or(double special, double usual) {
    return special > 0 ? special : usual;
}

double cluster_op_seconds(const struct cluster_device *d, const struct ggml_tensor *t) {
    const struct berth_op_cost c = berth_op_cost(t);
    const double bytes = c.bytes_read + c.bytes_written;
    if (bytes <= 0) {
        return 0; // a view
    }
    if (t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL_MAT_ID) {
        const enum ggml_type type = t->src[0]->type;
        return max_f64(bytes / speed_or(d->read[type], d->bandwidth), c.flops / speed_or(d->product[type], d->flops));
    }
    if (t->op == GGML_OP_FLASH_ATTN_EXT) {
        return d->op + max_f64(bytes / speed_or(d->attend_read, d->bandwidth), c.flops / speed_or(d->attend, d->flops));
    }
    return d->op + bytes / d->bandwidth;
}
