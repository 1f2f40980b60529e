// SPDX-License-Identifier: MIT
// state.c: describes which elements of a tensor each device has, and derives the states of views.
//
// The split axis consists of segments. Each segment is repeated nr times. Each repetition is divided among the devices in order.
// Example: two repetitions of 6 elements on two devices give device 0 the elements 0-2 and 6-8.
//
// Terms (n is the number of devices, j the index of a device):
// - A position is the data at one index of the split axis: all elements of the dimensions inside the axis. Along axis 0, a
//   position is one block of the type. A position belongs to one device.
// - A period is the data of all positions. The bytes of a root are a sequence of periods, one per index of the outer dimensions.
// - The carrier is the dimension of a view that runs along the split axis. The view is split along its carrier.
// At most one dimension is a carrier. Each other dimension stays inside a position or counts complete periods.
// Example: if a root of 8 x 6 x 4 f32 is split along axis 1, a position has 32 bytes, and a period has 6 positions (192 bytes).

#include "meta/meta.h"

#include "base/min.h"

const meta_state meta_mirrored = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
const meta_state meta_partial = {.axis = GGML_BACKEND_SPLIT_AXIS_PARTIAL, .n_segments = 1, .nr = {1}};

bool meta_same(const meta_state *a, const meta_state *b, int n) {
    if (a == b || a->axis != b->axis || !meta_is_split(a)) {
        return a == b || a->axis == b->axis;
    }
    const size_t n_ne = (size_t) a->n_segments * (size_t) n;
    return a->n_segments == b->n_segments && memcmp(a->nr, b->nr, a->n_segments * sizeof a->nr[0]) == 0 &&
           memcmp(a->ne, b->ne, n_ne * sizeof a->ne[0]) == 0;
}

int64_t meta_len(const meta_state *s, int n, int j) {
    int64_t len = 0;
    for (uint32_t i = 0; i < s->n_segments; i++) {
        len += s->ne[i * (uint32_t) n + (uint32_t) j] * s->nr[i];
    }
    return len;
}

bool meta_is_plain(const meta_state *s) {
    return s->n_segments == 1 && s->nr[0] == 1;
}

int64_t meta_start(const meta_state *s, int n, int j) {
    int64_t start = 0;
    (void) n;
    for (int i = 0; i < j; i++) {
        start += s->ne[i];
    }
    return start;
}

const char *meta_state_fault(const meta_state *s, const struct ggml_tensor *t, int n) {
    if (meta_is_mirrored(s) || meta_is_partial(s)) {
        return meta_is_mirrored(s) || t->type == GGML_TYPE_F32 ? NULL : "a sum over devices must be f32";
    }
    if (!meta_is_split(s)) {
        return "the axis is neither 0 to 3 nor mirrored nor partial";
    }
    if (s->n_segments < 1 || s->n_segments > META_MAX_SEGMENTS) {
        return "the number of segments is not between 1 and 16";
    }
    const int64_t block = s->axis == 0 ? ggml_blck_size(t->type) : 1;
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n_segments; i++) {
        for (int j = 0; j < n; j++) {
            const int64_t ne = s->ne[i * (uint32_t) n + (uint32_t) j];
            int64_t all;
            if (ne < 0 || ne % block != 0 || !berth_mul_i64_ok(ne, s->nr[i], &all) || !berth_add_i64_ok(sum, all, &sum)) {
                return "a count is negative, too large, or not a multiple of the block size";
            }
        }
    }
    return sum == t->ne[s->axis] ? NULL : "the sum of the counts is not the extent of the axis";
}

bool meta_segment_add(meta_state *s, int n, const int64_t *ne) {
    int64_t sum = 0;
    for (int j = 0; j < n; j++) {
        sum += ne[j];
    }
    if (sum == 0) {
        return true;
    }
    int64_t *last = s->n_segments > 0 ? &s->ne[(s->n_segments - 1) * (uint32_t) n] : NULL;
    if (last != NULL && memcmp(last, ne, (size_t) n * sizeof *ne) == 0) {
        s->nr[s->n_segments - 1]++;
        return true;
    }
    if (s->n_segments == META_MAX_SEGMENTS) {
        return false;
    }
    memcpy(&s->ne[s->n_segments * (uint32_t) n], ne, (size_t) n * sizeof *ne);
    s->nr[s->n_segments++] = 1;
    return true;
}

bool meta_scaled(const meta_state *s, int n, int axis, int64_t num, int64_t den, meta_state *out) {
    const size_t n_ne = (size_t) s->n_segments * (size_t) n;

    *out = *s;
    out->axis = (enum ggml_backend_meta_split_axis) axis;
    for (size_t i = 0; i < n_ne; i++) {
        int64_t ne;
        if (!berth_mul_i64_ok(s->ne[i], num, &ne) || ne % den != 0) {
            return false;
        }
        out->ne[i] = ne / den;
    }
    return true;
}

// ---- views ----

// Returns the extent of dimension d; for dimension 0, in blocks.
static int64_t units_of(const struct ggml_tensor *t, int d) {
    return d == 0 ? t->ne[0] / ggml_blck_size(t->type) : t->ne[d];
}

// Where a view is, relative to the positions and periods of its root.
struct layout {
    size_t unit, period; // unit: bytes of a position; period: bytes of a period
    int64_t n_pos;       // number of positions of the axis
    int64_t block;       // elements per position: the block size if the axis is 0, otherwise 1
    int carrier;         // dimension of the view that runs along the axis, -1: none
    int64_t pos;         // position of the axis at which the view begins
    size_t inner, outer; // inner: byte offset of the view in its first position; outer: number of periods before the view
    int64_t step;        // number of positions from one element of the carrier to the next; 0: several elements per position
    int64_t per;         // elements of the carrier per position, if step is 0
    int64_t n_periods;   // number of periods that the carrier runs through
};

static bool is_outer(const struct layout *l, size_t stride) {
    return stride % l->period == 0;
}

// Returns the dimension of the view that is the carrier. Returns -1 if every dimension stays inside a position or counts complete
// periods.
static int find_carrier(const struct layout *l, const struct ggml_tensor *t) {
    int carrier = -1;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        const int64_t e = units_of(t, d);
        const bool within = (size_t) e * t->nb[d] <= l->unit;
        if (e > 1 && !is_outer(l, t->nb[d]) && !within && (carrier < 0 || t->nb[d] > t->nb[carrier])) {
            carrier = d;
        }
    }
    return carrier;
}

// Returns the number of bytes from the first to the last byte of the view at one index of the carrier, without the dimensions
// that count periods.
static size_t span_within(const struct layout *l, const struct ggml_tensor *t) {
    size_t span = ggml_type_size(t->type);
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        const int64_t e = units_of(t, d);
        if (d != l->carrier && e > 1 && !is_outer(l, t->nb[d])) {
            span += (size_t) (e - 1) * t->nb[d];
        }
    }
    return span;
}

static bool read_layout(
    const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, size_t offset, struct layout *l) {
    const int a = (int) s->axis;

    *l = (struct layout){.unit = root->nb[a], .n_pos = units_of(root, a), .block = a == 0 ? ggml_blck_size(root->type) : 1};
    l->period = l->unit * (size_t) l->n_pos;
    if (l->period == 0 || ggml_nelements(t) == 0 || !ggml_is_contiguous(root)) {
        return false;
    }
    l->carrier = find_carrier(l, t);
    l->outer = offset / l->period;
    l->pos = (int64_t) (offset % l->period / l->unit);
    l->inner = offset % l->unit;
    if (l->carrier < 0) {
        return false;
    }
    const size_t stride = t->nb[l->carrier];
    const int64_t e = units_of(t, l->carrier);
    int64_t n_run; // number of positions that the carrier covers
    if (stride >= l->unit) {
        l->step = (int64_t) (stride / l->unit);
        if (stride % l->unit != 0 || l->inner + span_within(l, t) > stride) {
            return false;
        }
        n_run = (e - 1) * l->step + (int64_t) ((l->inner + span_within(l, t) + l->unit - 1) / l->unit);
    } else {
        l->per = (int64_t) (l->unit / stride);
        if (l->unit % stride != 0 || l->inner != 0 || e % l->per != 0 || span_within(l, t) > stride) {
            return false;
        }
        n_run = e / l->per;
    }
    l->n_periods = 1;
    if (l->pos + n_run > l->n_pos) { // the carrier covers several periods, which must be complete
        if (l->step > 0) {
            n_run = e * l->step;
        }
        if (l->pos != 0 || n_run % l->n_pos != 0) {
            return false;
        }
        l->n_periods = n_run / l->n_pos;
    }
    return true;
}

// Returns the number of carrier elements in positions [from, to). Returns -1 if `from` or `to` is inside an element. end: the
// position after the last one of the carrier.
static int64_t layout_count(const struct layout *l, int64_t from, int64_t to, int64_t end) {
    if (l->step == 0) {
        return (to - from) * l->per;
    }
    const int64_t rest = (from - l->pos) % l->step, len = to - from;
    return rest != 0 || (len % l->step != 0 && to != end) ? -1 : (len + l->step - 1) / l->step;
}

static int64_t run_end(const struct layout *l, const struct ggml_tensor *t) {
    const int64_t e = units_of(t, l->carrier), n_run = l->step > 0 ? e * l->step : e / l->per;
    const int64_t end = l->pos + n_run;
    return l->n_periods > 1 || end > l->n_pos ? l->n_pos : end;
}

bool meta_view_state(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, int n, meta_state *out) {
    struct layout l;
    if (!meta_is_split(s)) {
        *out = *s;
        return true;
    }
    if (t == root) {
        *out = *s;
        return true;
    }
    if (!read_layout(root, s, t, t->view_src != NULL ? t->view_offs : 0, &l)) {
        return false;
    }
    const int64_t end = run_end(&l, t);
    meta_state one = {.axis = (enum ggml_backend_meta_split_axis) l.carrier};
    int64_t at = 0;
    for (uint32_t i = 0; i < s->n_segments; i++) {
        for (uint32_t r = 0; r < s->nr[i]; r++) {
            int64_t ne[META_MAX];
            for (int j = 0; j < n; j++) {
                const int64_t len = s->ne[i * (uint32_t) n + (uint32_t) j] / l.block;
                const int64_t from = max_i64(at, l.pos), to = min_i64(at + len, end);
                ne[j] = from < to ? layout_count(&l, from, to, end) : 0;
                at += len;
                if (ne[j] < 0) {
                    return false;
                }
                ne[j] *= l.carrier == 0 ? ggml_blck_size(t->type) : 1;
            }
            if (!meta_segment_add(&one, n, ne)) {
                return false;
            }
        }
    }
    *out = one;
    if (one.n_segments == 1) {
        out->nr[0] = (uint32_t) (one.nr[0] * l.n_periods);
        return true;
    }
    for (int64_t p = 1; p < l.n_periods; p++) {
        for (uint32_t i = 0; i < one.n_segments; i++) {
            for (uint32_t r = 0; r < one.nr[i]; r++) {
                if (!meta_segment_add(out, n, &one.ne[i * (uint32_t) n])) {
                    return false;
                }
            }
        }
    }
    return true;
}

// Returns the number of positions of device j before position pos.
static int64_t count_before(const meta_state *s, int n, int j, int64_t block, int64_t pos) {
    int64_t at = 0, mine = 0;
    for (uint32_t i = 0; i < s->n_segments; i++) {
        for (uint32_t r = 0; r < s->nr[i]; r++) {
            for (int k = 0; k < n; k++) {
                const int64_t len = s->ne[i * (uint32_t) n + (uint32_t) k] / block;
                const int64_t take = min_i64(pos - at, len);
                mine += k == j && take > 0 ? take : 0;
                at += len;
            }
            if (at >= pos) {
                return mine;
            }
        }
    }
    return mine;
}

size_t meta_view_part(const struct ggml_tensor *root, const meta_state *s, const struct ggml_tensor *t, const meta_state *t_state,
    int n, int j, struct ggml_tensor *part) {
    memcpy(part->ne, t->ne, sizeof part->ne);
    memcpy(part->nb, t->nb, sizeof part->nb);
    const size_t offset = t->view_src != NULL ? t->view_offs : 0;
    if (!meta_is_split(s)) {
        return offset;
    }
    const int a = (int) s->axis;
    const int64_t block = a == 0 ? ggml_blck_size(root->type) : 1;
    const size_t unit = root->nb[a], period = unit * (size_t) (root->ne[a] / block);
    const size_t part_len = unit * (size_t) (meta_len(s, n, j) / block);
    part->ne[t_state->axis] = meta_len(t_state, n, j);
    for (int d = 0; d < GGML_MAX_DIMS && period > 0; d++) {
        if (t->nb[d] % period == 0 && (t == root ? d > a : d != (int) t_state->axis)) {
            part->nb[d] = t->nb[d] / period * part_len;
        }
    }
    if (period == 0 || t == root) {
        return 0;
    }
    const int64_t pos = (int64_t) (offset % period / unit);
    return offset / period * part_len + (size_t) count_before(s, n, j, block, pos) * unit + offset % unit;
}

// ---- pieces ----

bool meta_pieces(const struct ggml_tensor *root, const meta_state *s, int n, int j,
    bool (*do_piece)(const struct meta_piece *p, void *user), void *user) {
    const int a = (int) s->axis;
    const int64_t block = a == 0 ? ggml_blck_size(root->type) : 1;
    const size_t unit = root->nb[a], period = unit * (size_t) (root->ne[a] / block), whole = ggml_nbytes(root);
    int64_t at = 0, mine[META_MAX] = {0};
    for (uint32_t i = 0; i < s->n_segments; i++) {
        for (uint32_t r = 0; r < s->nr[i]; r++) {
            for (int k = 0; k < n; k++) {
                const int64_t len = s->ne[i * (uint32_t) n + (uint32_t) k] / block;
                const struct meta_piece p = {
                    .j = k,
                    .whole = (size_t) at * unit,
                    .part = (size_t) mine[k] * unit,
                    .size = (size_t) len * unit,
                    .whole_step = period,
                    .part_step = unit * (size_t) (meta_len(s, n, k) / block),
                    .n_outer = period > 0 ? whole / period : 0,
                };
                at += len;
                mine[k] += len;
                if ((j < 0 || j == k) && p.size > 0 && p.n_outer > 0 && !do_piece(&p, user)) {
                    return false;
                }
            }
        }
    }
    return true;
}
