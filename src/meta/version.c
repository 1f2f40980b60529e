// SPDX-License-Identifier: MIT
// version.c: creates versions of tensors, and the steps that convert one version to another.
// A version of a tensor is its parts in one state: the parts in planned memory (native), a complete copy, or slices.

#include "meta/build.h"

#include "base/min.h"

struct meta_step *meta_step_add(struct meta_builder *b, enum meta_step_kind kind) {
    struct meta_program *p = b->p;
    b->is_running = kind == META_COMPUTE;
    b->clock++;
    if (!berth_grow((void **) &p->steps, &p->steps_cap, p->n_steps + 1, sizeof p->steps[0])) {
        b->has_failed = true;
        return NULL;
    }
    p->steps[p->n_steps] = (struct meta_step){.kind = kind};
    return &p->steps[p->n_steps++];
}

void *meta_builder_take(struct meta_builder *b, size_t n, size_t size) {
    void *p = meta_take(&b->p->arena, n * size);
    b->has_failed = b->has_failed || p == NULL;
    return p;
}

struct ggml_tensor *meta_parts_take(struct meta_builder *b) {
    return meta_builder_take(b, (size_t) b->n, sizeof(struct ggml_tensor));
}

const meta_state *meta_state_keep(struct meta_builder *b, const meta_state *s) {
    if (meta_is_mirrored(s) || meta_is_partial(s)) {
        return meta_is_mirrored(s) ? &meta_mirrored : &meta_partial;
    }
    for (size_t i = 0; i < META_N_KEPT_STATES && i < b->n_kept_states; i++) {
        if (meta_same(b->kept_states[i], s, b->n)) {
            return b->kept_states[i];
        }
    }
    meta_state *copy = meta_builder_take(b, 1, sizeof *copy);
    if (copy != NULL) {
        *copy = *s;
        b->kept_states[b->n_kept_states++ % META_N_KEPT_STATES] = copy;
    }
    return copy != NULL ? copy : &meta_mirrored;
}

static int32_t row_of(struct meta_builder *b, const struct ggml_tensor *t) {
    return berth_record_find(&b->p->rec, t);
}

struct meta_row *meta_row_of(struct meta_builder *b, const struct ggml_tensor *t) {
    const int32_t r = row_of(b, meta_root(t));
    b->has_failed = b->has_failed || r < 0; // no row: the index could not be allocated, because every tensor has a row
    return &b->rows[r >= 0 ? r : b->p->rec.n_rows];
}

void meta_use(struct meta_builder *b, struct meta_version v) {
    if (v.temp >= 0) {
        b->p->temps[v.temp].last = b->clock;
    }
}

static void make_dense(struct ggml_tensor *t) {
    t->nb[0] = ggml_type_size(t->type);
    for (int d = 1; d < GGML_MAX_DIMS; d++) {
        t->nb[d] = t->nb[d - 1] * (size_t) (d == 1 ? t->ne[0] / ggml_blck_size(t->type) : t->ne[d - 1]);
    }
}

struct meta_version meta_temp_new(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *s) {
    struct meta_program *p = b->p;
    struct meta_version v = {.parts = meta_parts_take(b), .temp = (int32_t) p->n_temps};
    if (v.parts == NULL || !berth_grow((void **) &p->temps, &p->temps_cap, p->n_temps + 1, sizeof p->temps[0])) {
        b->has_failed = true;
        return (struct meta_version){.temp = -1};
    }
    for (int j = 0; j < b->n; j++) {
        struct ggml_tensor *part = &v.parts[j];
        *part = (struct ggml_tensor){.type = t->type, .flags = GGML_TENSOR_FLAG_COMPUTE};
        memcpy(part->ne, t->ne, sizeof part->ne);
        memcpy(part->name, t->name, sizeof part->name);
        if (meta_is_split(s)) {
            part->ne[s->axis] = meta_len(s, b->n, j);
        }
        make_dense(part);
    }
    p->temps[p->n_temps++] = (struct meta_temp){.parts = v.parts, .first = b->clock, .last = b->clock};
    return v;
}

// Makes `part` a view of `root`. If root is temporary (is_temp), it has no address yet; plan_temps then sets the address of part.
static void view_of(struct meta_builder *b, struct ggml_tensor *part, struct ggml_tensor *root, size_t offset, bool is_temp) {
    struct meta_program *p = b->p;
    part->view_src = root;
    part->view_offs = offset;
    part->buffer = root->buffer;
    part->data = root->data != NULL ? (char *) root->data + offset : NULL;
    if (is_temp) {
        if (!berth_grow((void **) &p->views, &p->views_cap, p->n_views + 1, sizeof p->views[0])) {
            b->has_failed = true;
            return;
        }
        p->views[p->n_views++] = part;
    }
}

// ---- versions ----

// Returns the view t of the version `root`. state: the state of t that follows from root_state.
static struct meta_version view_version(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version root,
    const meta_state *root_state, const meta_state *state) {
    struct meta_version v = {.parts = root.parts != NULL ? meta_parts_take(b) : NULL, .temp = root.temp};
    for (int j = 0; v.parts != NULL && j < b->n; j++) {
        struct ggml_tensor *part = &v.parts[j];
        *part = (struct ggml_tensor){.type = t->type, .flags = t->flags};
        memcpy(part->name, t->name, sizeof part->name);
        const size_t offset = meta_view_part(t->view_src, root_state, t, state, b->n, j, part);
        view_of(b, part, &root.parts[j], offset, root.temp >= 0);
    }
    return v;
}

// Computes the part of the root on device j. If the memory was planned for another state and is too small, it is enlarged.
static bool root_part(
    struct meta_builder *b, const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part) {
    if (b->sizing != NULL) {
        meta_sizing_part(b->sizing, root, state, j, part);
        return true;
    }
    if (!meta_root_fits(root, state, j)) {
        struct ggml_tensor one = {.type = root->type};
        meta_view_part(root, state, root, state, b->n, j, &one);
        b->has_grown = true;
        if (!meta_slot_grow(root, j, ggml_nbytes(&one))) {
            return false;
        }
    }
    return meta_root_part(root, state, j, part);
}

struct meta_version meta_native(struct meta_builder *b, const struct ggml_tensor *t) {
    struct meta_row *row = meta_row_of(b, t);
    if (row->native.parts == NULL) {
        row->native = (struct meta_version){.parts = meta_parts_take(b), .temp = -1};
        for (int j = 0; row->native.parts != NULL && j < b->n; j++) {
            if (!root_part(b, meta_root(t), row->state, j, &row->native.parts[j])) {
                row->native.parts = NULL;
            }
        }
    }
    if (t->view_src == NULL || row->native.parts == NULL) {
        return row->native;
    }
    meta_state state;
    return meta_view_state(t->view_src, row->state, t, b->n, &state) ? view_version(b, t, row->native, row->state, &state)
                                                                     : (struct meta_version){.temp = -1};
}

void meta_move(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version from, const meta_state *from_state,
    struct meta_version to, const meta_state *to_state) {
    struct meta_step *step = meta_step_add(b, META_MOVE);
    struct ggml_tensor *shape = step != NULL ? meta_builder_take(b, 1, sizeof *shape) : NULL;
    if (shape == NULL || from.parts == NULL || to.parts == NULL) {
        b->has_failed = true;
        return;
    }
    *shape = (struct ggml_tensor){.type = t->type};
    memcpy(shape->ne, t->ne, sizeof shape->ne);
    memcpy(shape->name, t->name, sizeof shape->name);
    make_dense(shape);
    *step = (struct meta_step){
        .kind = META_MOVE, .src = from.parts, .dst = to.parts, .src_state = from_state, .dst_state = to_state, .shape = shape};
    meta_use(b, from);
    meta_use(b, to);
    const size_t size = ggml_nbytes(shape), both = meta_is_partial(from_state) ? size * 2 : size;
    b->p->stage_size = max_size(both, b->p->stage_size);
    b->p->redistributed_size += (int64_t) size * (meta_is_split(to_state) ? 1 : b->n);
    b->whole_bytes += (int64_t) size * (meta_is_split(to_state) ? 1 : b->n);
}

static void share_view(
    struct meta_builder *b, struct ggml_tensor *view, struct ggml_tensor *part, int64_t from, int64_t to, bool is_temp) {
    const size_t element = ggml_type_size(part->type);

    *view = (struct ggml_tensor){.type = part->type, .flags = GGML_TENSOR_FLAG_COMPUTE, .ne = {to - from, 1, 1, 1}};
    make_dense(view);
    view_of(b, view, part, (size_t) from * element, is_temp);
}

// Returns the first element of share i of n. Shares are multiples of 128 bytes, so that no two devices write to one cache line.
static int64_t share_start(int64_t ne, int n, int i) {
    const int64_t each = ((ne + n - 1) / n + 31) / 32 * 32, at = each * i;
    return min_i64(at, ne);
}

void meta_sum(struct meta_builder *b, const struct ggml_tensor *root, struct meta_version v) {
    const size_t n = (size_t) b->n;
    struct meta_step step = {.kind = META_SUM, .dst = v.parts};
    step.shares = meta_builder_take(b, n * n, sizeof *step.shares);
    step.operands = meta_builder_take(b, n * n, sizeof *step.operands);
    step.adds = meta_builder_take(b, n * n, sizeof *step.adds);
    step.graphs = meta_builder_take(b, n, sizeof *step.graphs);
    const int64_t ne = ggml_nelements(root), each = share_start(ne, b->n, 1);
    struct ggml_tensor piece = {.type = root->type, .ne = {each, b->n, 1, 1}};
    struct meta_step *new_step = meta_step_add(b, META_SUM);
    const struct meta_version in = meta_temp_new(b, &piece, &meta_mirrored);
    if (b->has_failed || new_step == NULL || v.parts == NULL) {
        b->has_failed = true;
        return;
    }
    for (int k = 0; k < b->n; k++) {
        struct ggml_tensor **nodes = meta_builder_take(b, n, sizeof *nodes);
        int n_nodes = 0;
        const int64_t start = share_start(ne, b->n, k), end = share_start(ne, b->n, k + 1);
        v.parts[k].flags |= GGML_TENSOR_FLAG_COMPUTE;
        for (int i = 0; i < b->n && nodes != NULL; i++) {
            const size_t at = (size_t) k * n + (size_t) i;
            share_view(b, &step.shares[at], &v.parts[k], share_start(ne, b->n, i), share_start(ne, b->n, i + 1), v.temp >= 0);
            share_view(b, &step.operands[at], &in.parts[k], i * each, i * each + (end - start), true);
        }
        for (int i = 0; i < b->n && nodes != NULL && end > start; i++) {
            struct ggml_tensor *add = &step.adds[(size_t) k * n + (size_t) i], *mine = &step.shares[(size_t) k * n + (size_t) k];
            if (i == k) {
                continue;
            }
            *add = *mine;
            add->op = GGML_OP_ADD;
            add->src[0] = n_nodes == 0 ? mine : nodes[n_nodes - 1];
            add->src[1] = &step.operands[(size_t) k * n + (size_t) i];
            view_of(b, add, &v.parts[k], mine->view_offs, v.temp >= 0);
            nodes[n_nodes++] = add;
        }
        step.graphs[k] = (struct ggml_cgraph){.size = n_nodes, .n_nodes = n_nodes, .nodes = nodes, .uid = ggml_graph_next_uid()};
    }
    *new_step = step;
    meta_use(b, v);
    b->p->n_sums++;
    b->p->summed_size += (int64_t) ggml_nbytes(root);
}

bool meta_is_own(const struct meta_builder *b, const struct ggml_tensor *root) {
    const struct meta_buffer *mb =
        b->sizing == NULL || meta_sizing_item(b->sizing, root) < 0 ? meta_buffer_of(root->buffer) : NULL;
    return mb != NULL && mb->ctxs != NULL;
}

struct meta_version meta_whole_root(struct meta_builder *b, const struct ggml_tensor *root) {
    struct meta_row *row = meta_row_of(b, root);
    if (meta_is_mirrored(row->state)) {
        return meta_native(b, root);
    }
    if (row->has_whole) {
        return row->whole;
    }
    const struct meta_version native = meta_native(b, root);
    if (meta_is_partial(row->state) && !meta_is_own(b, root)) {
        meta_sum(b, root, native);
        row->state = &meta_mirrored;
        return native;
    }
    row->whole = meta_temp_new(b, root, &meta_mirrored);
    row->has_whole = row->whole.parts != NULL;
    meta_move(b, root, native, row->state, row->whole, &meta_mirrored);
    return row->whole;
}

struct meta_version meta_whole_view(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version root) {
    return view_version(b, t, root, &meta_mirrored, &meta_mirrored);
}

static struct meta_version whole_of(struct meta_builder *b, const struct ggml_tensor *t) {
    const struct meta_version root = meta_whole_root(b, meta_root(t));
    return t->view_src == NULL ? root : view_version(b, t, root, &meta_mirrored, &meta_mirrored);
}

// Returns true if the roots of x and y share memory. Then a slice of x must not be read while y is written, because the same
// element may have different addresses in the slice and in y.
static bool shares_memory(const struct meta_builder *b, const struct ggml_tensor *x, const struct ggml_tensor *y) {
    const struct ggml_tensor *a = meta_root(x), *c = meta_root(y);
    const int32_t item = b->sizing != NULL ? meta_sizing_item(b->sizing, a) : -1;
    if (b->sizing != NULL && (item >= 0 || meta_sizing_item(b->sizing, c) >= 0)) {
        return item == meta_sizing_item(b->sizing, c);
    }
    const size_t at = meta_offset(a->data), other = meta_offset(c->data);
    return a->buffer == c->buffer && !meta_is_own(b, a) && at < other + ggml_nbytes(c) && other < at + ggml_nbytes(a);
}

// Returns source t of the node, sliced to state s. If the slices can be views of the complete tensor and share no memory with the
// node, they are views. Otherwise they are a temporary copy.
static struct meta_version source_slice(
    struct meta_builder *b, const struct ggml_tensor *t, const meta_state *s, const struct ggml_tensor *node) {
    const struct meta_version whole = whole_of(b, t);
    if (whole.parts == NULL) {
        return whole;
    }
    if (!meta_is_plain(s) || (whole.temp < 0 && shares_memory(b, t, node))) {
        const struct meta_version v = meta_temp_new(b, t, s);
        meta_move(
            b, t, whole, &meta_mirrored, v, meta_state_keep(b, s)); // keeps a copy: s may exist only while its node is built
        return v;
    }
    struct meta_version v = {.parts = meta_parts_take(b), .temp = whole.temp};
    for (int j = 0; v.parts != NULL && j < b->n; j++) {
        struct ggml_tensor *part = &v.parts[j];
        const int64_t block = s->axis == 0 ? ggml_blck_size(t->type) : 1;
        *part = whole.parts[j];
        part->op = GGML_OP_NONE;
        part->ne[s->axis] = s->ne[j];
        memset(part->src, 0, sizeof part->src);
        const size_t offset = (size_t) (meta_start(s, b->n, j) / block) * t->nb[s->axis];
        struct ggml_tensor *root = whole.parts[j].view_src != NULL ? whole.parts[j].view_src : &whole.parts[j];
        view_of(b, part, root, (whole.parts[j].view_src != NULL ? whole.parts[j].view_offs : 0) + offset, whole.temp >= 0);
    }
    return v;
}

const meta_state *meta_state_of(struct meta_builder *b, const struct ggml_tensor *t) {
    const struct meta_row *root = meta_row_of(b, t);
    meta_state s;
    if (t->view_src == NULL || !meta_is_split(root->state)) {
        return root->state;
    }
    const int32_t r = row_of(b, t);
    struct meta_row *row = &b->rows[r >= 0 ? r : b->p->rec.n_rows];
    if (row->view_state_of != root->state) {
        row->view_state = meta_view_state(t->view_src, root->state, t, b->n, &s) ? meta_state_keep(b, &s) : NULL;
        row->view_state_of = root->state;
    }
    return row->view_state;
}

bool meta_can_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have, const meta_state *want,
    const struct ggml_tensor *node) {
    if (!meta_is_split(want) || (have != NULL && meta_same(have, want, b->n))) {
        return true;
    }
    const bool is_view_enough = meta_is_plain(want) && !shares_memory(b, t, node);
    return meta_state_fault(want, t, b->n) == NULL && (is_view_enough || ggml_is_contiguous(t));
}

struct meta_version meta_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have,
    const meta_state *want, const struct ggml_tensor *node) {
    if (have != NULL && meta_same(have, want, b->n)) {
        return meta_native(b, t);
    }
    return meta_is_split(want) ? source_slice(b, t, want, node) : whole_of(b, t);
}
