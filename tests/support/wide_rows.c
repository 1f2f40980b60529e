// SPDX-License-Identifier: MIT
// wide_rows.c: ops that move elements, sum them or normalise rows, in double precision.

#include "support/wide.h"

typedef struct ggml_tensor T;

// ---- views ----

void wide_view(const T *t, double *y, const double *const *x) {
    const T *base = wide_base(t);
    WIDE_EACH(t, p) {
        const size_t at = t->view_offs - base->view_offs + (size_t) p.i0 * t->nb[0] + (size_t) p.i1 * t->nb[1] +
                          (size_t) p.i2 * t->nb[2] + (size_t) p.i3 * t->nb[3];
        y[p.n] = x[0][at / ggml_type_size(base->type)];
    }
}

void wide_permute(const T *t, double *y, const double *const *x) {
    const int32_t *axis = t->op_params; // axis of the result for each axis of the source
    WIDE_EACH(t, p) {
        const int64_t at[] = {p.i0, p.i1, p.i2, p.i3};
        y[p.n] = x[0][wide_index(t->src[0], at[axis[0]], at[axis[1]], at[axis[2]], at[axis[3]])];
    }
}

void wide_transpose(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        y[p.n] = x[0][wide_index(t->src[0], p.i1, p.i0, p.i2, p.i3)];
    }
}

// ---- sums and repetition ----

static void clear(const T *t, double *y) {
    memset(y, 0, (size_t) ggml_nelements(t) * sizeof *y);
}

void wide_sum(const T *t, double *y, const double *const *x) {
    y[0] = 0;
    WIDE_EACH(t->src[0], p) {
        y[0] += x[0][p.n];
    }
}

void wide_sum_rows(const T *t, double *y, const double *const *x) {
    clear(t, y);
    WIDE_EACH(t->src[0], p) {
        y[p.n / t->src[0]->ne[0]] += x[0][p.n];
    }
}

void wide_mean(const T *t, double *y, const double *const *x) {
    wide_sum_rows(t, y, x);
    WIDE_EACH(t, p) {
        y[p.n] /= (double) t->src[0]->ne[0];
    }
}

void wide_cumsum(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        y[p.n] = x[0][p.n] + (p.i0 > 0 ? y[p.n - 1] : 0);
    }
}

void wide_repeat(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        y[p.n] = x[0][wide_round(t->src[0], p.i0, p.i1, p.i2, p.i3)];
    }
}

void wide_repeat_back(const T *t, double *y, const double *const *x) {
    clear(t, y);
    WIDE_EACH(t->src[0], p) {
        y[wide_round(t, p.i0, p.i1, p.i2, p.i3)] += x[0][p.n];
    }
}

void wide_concat(const T *t, double *y, const double *const *x) {
    const int dim = t->op_params[0];
    const T *a = t->src[0], *b = t->src[1];
    WIDE_EACH(t, p) {
        int64_t at[] = {p.i0, p.i1, p.i2, p.i3};
        const bool second = at[dim] >= a->ne[dim];
        at[dim] -= second ? a->ne[dim] : 0;
        y[p.n] = x[second][wide_index(second ? b : a, at[0], at[1], at[2], at[3])];
    }
}

// ---- reading and writing selected rows ----

void wide_get_rows(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        const int64_t id = (int64_t) x[1][wide_index(t->src[1], p.i1, p.i2, p.i3, 0)];
        y[p.n] = x[0][wide_index(t->src[0], p.i0, id, p.i2, p.i3)];
    }
}

void wide_get_rows_back(const T *t, double *y, const double *const *x) {
    clear(t, y);
    WIDE_EACH(t->src[0], p) {
        y[wide_index(t, p.i0, (int64_t) x[1][p.i1], 0, 0)] += x[0][p.n];
    }
}

// The sources are the rows, their indices and the target.
void wide_set_rows(const T *t, double *y, const double *const *x) {
    memcpy(y, x[2], (size_t) ggml_nelements(t) * sizeof *y);
    WIDE_EACH(t->src[0], p) {
        const int64_t id = (int64_t) x[1][wide_round(t->src[1], p.i1, p.i2, p.i3, 0)];
        y[wide_index(t, p.i0, id, p.i2, p.i3)] = x[0][p.n];
    }
}

// ---- diagonals, shifts, resizing ----

void wide_diag(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        y[p.n] = p.i0 == p.i1 ? x[0][wide_index(t->src[0], p.i0, 0, p.i2, p.i3)] : 0;
    }
}

static void diag_mask(const T *t, double *y, const double *x, double outside) {
    WIDE_EACH(t, p) {
        y[p.n] = p.i0 > p.i1 + t->op_params[0] ? outside : x[p.n];
    }
}
void wide_diag_mask_inf(const T *t, double *y, const double *const *x) {
    diag_mask(t, y, x[0], -INFINITY);
}
void wide_diag_mask_zero(const T *t, double *y, const double *const *x) {
    diag_mask(t, y, x[0], 0);
}

void wide_roll(const T *t, double *y, const double *const *x) {
    WIDE_EACH(t, p) {
        int64_t at[] = {p.i0, p.i1, p.i2, p.i3};
        for (int i = 0; i < 4; i++) {
            at[i] = ((at[i] - t->op_params[i]) % t->ne[i] + t->ne[i]) % t->ne[i];
        }
        y[p.n] = x[0][wide_index(t, at[0], at[1], at[2], at[3])];
    }
}

// op_params: number of zeros before and after, for each dimension.
void wide_pad(const T *t, double *y, const double *const *x) {
    const T *a = t->src[0];
    WIDE_EACH(t, p) {
        int64_t at[] = {p.i0, p.i1, p.i2, p.i3};
        bool inside = true;
        for (int i = 0; i < 4; i++) {
            at[i] -= t->op_params[2 * i];
            inside = inside && at[i] >= 0 && at[i] < a->ne[i];
        }
        y[p.n] = inside ? x[0][wide_index(a, at[0], at[1], at[2], at[3])] : 0;
    }
}

// Takes the nearest pixel. The factors are integers.
void wide_upscale(const T *t, double *y, const double *const *x) {
    const T *a = t->src[0];
    WIDE_EACH(t, p) {
        y[p.n] = x[0][wide_index(a, p.i0 * a->ne[0] / t->ne[0], p.i1 * a->ne[1] / t->ne[1], p.i2, p.i3)];
    }
}

// ---- norms ----

static void scale_row(int64_t n, double *y, const double *x, double offset, double factor) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - offset) * factor;
    }
}

static double mean_of(int64_t n, const double *x) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum / (double) n;
}

static double squares_of(int64_t n, const double *x, double offset) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - offset) * (x[i] - offset);
    }
    return sum;
}

static void norm_row(int64_t n, double *y, const double *x, double eps) {
    const double mean = mean_of(n, x);
    scale_row(n, y, x, mean, 1 / sqrt(squares_of(n, x, mean) / (double) n + eps));
}

void wide_norm(const T *t, double *y, const double *const *x) {
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        norm_row(t->ne[0], y + r * t->ne[0], x[0] + r * t->ne[0], (double) param_f32(t, 0));
    }
}

void wide_rms_norm(const T *t, double *y, const double *const *x) {
    const int64_t n = t->ne[0];
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        const double *row = x[0] + r * n;
        scale_row(n, y + r * n, row, 0, 1 / sqrt(squares_of(n, row, 0) / (double) n + (double) param_f32(t, 0)));
    }
}

// The number of channels is a multiple of the number of groups.
void wide_group_norm(const T *t, double *y, const double *const *x) {
    const int64_t n_groups = t->op_params[0], n = t->ne[0] * t->ne[1] * (t->ne[2] / n_groups);
    for (int64_t g = 0; g < n_groups * t->ne[3]; g++) {
        norm_row(n, y + g * n, x[0] + g * n, (double) param_f32(t, 1));
    }
}

void wide_l2_norm(const T *t, double *y, const double *const *x) {
    const int64_t n = t->ne[0];
    for (int64_t r = 0; r < ggml_nrows(t); r++) {
        const double *row = x[0] + r * n;
        scale_row(n, y + r * n, row, 0, 1 / fmax(sqrt(squares_of(n, row, 0)), (double) param_f32(t, 0)));
    }
}

// ---- the loss ----

// The mean over rows of -sum(label log softmax(x)).
void wide_cross_entropy_loss(const T *t, double *y, const double *const *x) {
    const int64_t n = t->src[0]->ne[0], n_rows = ggml_nrows(t->src[0]);
    y[0] = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const double *row = x[0] + r * n, *label = x[1] + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += exp(row[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            y[0] -= label[i] * (row[i] - log(sum)) / (double) n_rows;
        }
    }
}
