// SPDX-License-Identifier: MIT
// dump.c: writes the results of a recipe as text. A tensor is named after the first call that returned it (#3). Tensors found
// through sources and views are numbered in the order of discovery (+0, +1, ...). Addresses are never printed.
#include "machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Named tensors in the order of naming, with a hash table by address.
struct names {
    const struct ggml_tensor **tensors;
    int *calls; // [n] call that returned the tensor; -1 - k: k-th discovered tensor
    int n, n_alloc;
    int n_found;
    int *table; // open addressing: 1 + index into tensors, 0: free
    size_t table_size;
};

static void *grow(void *p, size_t n, size_t size) {
    p = realloc(p, n * size);
    if (p == NULL) {
        abort();
    }
    return p;
}

static size_t names_slot(const struct names *s, const struct ggml_tensor *t) {
    size_t i = (((uintptr_t) t >> 4) * 0x9E3779B97F4A7C15u >> 20) & (s->table_size - 1);
    while (s->table[i] != 0 && s->tensors[s->table[i] - 1] != t) {
        i = (i + 1) & (s->table_size - 1);
    }
    return i;
}

static void names_rehash(struct names *s) {
    s->table_size = s->table_size == 0 ? 256 : 2 * s->table_size;
    s->table = grow(s->table, s->table_size, sizeof(*s->table));
    memset(s->table, 0, s->table_size * sizeof(*s->table));
    for (int i = 0; i < s->n; i++) {
        s->table[names_slot(s, s->tensors[i])] = i + 1;
    }
}

// Names a tensor. call: the call that returned it; -1: it was reached through another tensor.
static void names_add(struct names *s, const struct ggml_tensor *t, int call) {
    if (t == NULL) {
        return;
    }
    if ((size_t) s->n * 2 >= s->table_size) {
        names_rehash(s);
    }
    const size_t slot = names_slot(s, t);
    if (s->table[slot] != 0) {
        return;
    }
    if (s->n == s->n_alloc) {
        s->n_alloc = 2 * s->n_alloc + 64;
        s->tensors = grow(s->tensors, (size_t) s->n_alloc, sizeof(*s->tensors));
        s->calls = grow(s->calls, (size_t) s->n_alloc, sizeof(*s->calls));
    }
    s->tensors[s->n] = t;
    s->calls[s->n] = call >= 0 ? call : -1 - s->n_found++;
    s->table[slot] = ++s->n;
}

// Returns "#3", "+0", "NULL" or "?" in a buffer that stays valid for the next few calls.
static const char *name_of(const struct names *s, const struct ggml_tensor *t) {
    static char buffers[16][16];
    static unsigned next;
    if (t == NULL) {
        return "NULL";
    }
    const int i = s->table_size == 0 ? 0 : s->table[names_slot(s, t)];
    if (i == 0) {
        return "?";
    }
    char *buffer = buffers[next++ % 16];
    const int call = s->calls[i - 1];
    snprintf(buffer, sizeof(buffers[0]), "%c%d", call >= 0 ? '#' : '+', call >= 0 ? call : -1 - call);
    return buffer;
}

static void dump_tensor(struct machine *m, const struct names *s, const struct ggml_tensor *t) {
    struct outcome *o = m->outcome;
    text_add(o, "%s type %d op %d ne %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " nb %zu %zu %zu %zu flags %d view %s+%zu",
        name_of(s, t), (int) t->type, (int) t->op, t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->nb[0], t->nb[1], t->nb[2], t->nb[3],
        (int) t->flags, name_of(s, t->view_src), t->view_offs);
    const size_t n_params = sizeof(t->op_params) / sizeof(t->op_params[0]);
    size_t n = n_params;
    const bool is_custom = t->op >= GGML_OP_MAP_CUSTOM1 && t->op <= GGML_OP_CUSTOM;
    while (n > 0 && (t->op_params[n - 1] == 0 || (is_custom && n == 4))) {
        n--;
    }
    text_add(o, " params");
    for (size_t i = 0; i < n; i++) {
        // op_params of custom ops are {function, int, pointer}. The reference does not initialise the padding.
        text_add(o, " %" PRIx32, is_custom && i == 3 ? 0 : (uint32_t) t->op_params[i]);
    }
    text_add(o, " src");
    int last = GGML_MAX_SRC - 1;
    while (last >= 0 && t->src[last] == NULL) {
        last--;
    }
    for (int i = 0; i <= last; i++) {
        text_add(o, " %s", name_of(s, t->src[i]));
    }
    if (t->data != NULL) {
        text_add(o, " data %td", (char *) t->data - (char *) m->api->ggml_get_mem_buffer(m->ctx));
    }
    text_add(
        o, "%s%s name '%.*s'\n", t->buffer == NULL ? "" : " buffer", t->extra == NULL ? "" : " extra", GGML_MAX_NAME, t->name);
}

static int32_t use_count(const struct ggml_cgraph *g, const struct ggml_tensor *t) {
    const size_t i = berth_hash_find(&g->visited_hash_set, t);
    return i != BERTH_HASH_NONE && berth_bit_get(g->visited_hash_set.used, i) ? g->use_counts[i] : -1;
}

static void dump_graph(struct machine *m, const struct names *s, int call, const struct ggml_cgraph *g) {
    struct outcome *o = m->outcome;
    if (g == NULL) {
        text_add(o, "graph #%d NULL\n", call);
        return;
    }
    text_add(o, "graph #%d size %d nodes %d leafs %d order %d uid %d hash %zu grads %d\n", call, g->size, g->n_nodes, g->n_leafs,
        (int) g->order, g->uid != 0, g->visited_hash_set.size, g->grads != NULL);
    for (int i = 0; i < g->n_nodes; i++) {
        text_add(o, "  node %d %s\n", i, name_of(s, g->nodes[i]));
    }
    for (int i = 0; i < g->n_leafs && g->leafs != NULL; i++) {
        text_add(o, "  leaf %d %s\n", i, name_of(s, g->leafs[i]));
    }
    if (g->visited_hash_set.size == 0 || g->visited_hash_set.keys == NULL) {
        return;
    }
    size_t n_used = 0;
    for (size_t i = 0; i < g->visited_hash_set.size; i++) {
        n_used += berth_bit_get(g->visited_hash_set.used, i);
    }
    text_add(o, "  visited %zu\n", n_used);
    for (int i = 0; i < s->n; i++) {
        const struct ggml_tensor *t = s->tensors[i];
        const int32_t uses = use_count(g, t);
        if (uses >= 0) {
            const size_t slot = berth_hash_find(&g->visited_hash_set, t);
            text_add(o, "  uses %s %d %s %s\n", name_of(s, t), uses, g->grads == NULL ? "" : name_of(s, g->grads[slot]),
                g->grad_accs == NULL ? "" : name_of(s, g->grad_accs[slot]));
        }
    }
}

// ggml_reset frees the results of earlier calls.
static int first_alive(const struct recipe *r) {
    int first = 0;
    for (int i = 0; i < r->n_calls; i++) {
        if (r->calls[i].id == CALL_ggml_reset) {
            first = i + 1;
        }
    }
    return first;
}

void machine_dump(struct machine *m, const struct recipe *r) {
    struct outcome *o = m->outcome;
    struct names s = {0};
    const int first = first_alive(r);
    for (int i = first; i < r->n_calls; i++) {
        const union value *v = &m->values[i];
        const char result = call_table[r->calls[i].id].result;
        if (result == 'T') {
            names_add(&s, v->t, i);
            if (v->t == NULL) {
                text_add(o, "#%d NULL\n", i);
            }
        } else if (result == 'I' || result == 'O') {
            text_add(o, "#%d = %" PRId64 "\n", i, v->i);
        } else if (result == 'D') {
            text_add(o, "#%d = %a\n", i, v->d);
        } else if (result == 'S') {
            text_add(o, "#%d = '%s'\n", i, v->s == NULL ? "(null)" : v->s);
        }
    }
    text_add(o, "out %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %a %a\n", m->out[0], m->out[1], m->out[2], m->out[3],
        (double) m->outf[0], (double) m->outf[1]);
    for (int i = 0; i < s.n; i++) { // names_add extends the list, until all reachable tensors are in it
        const struct ggml_tensor *t = s.tensors[i];
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            names_add(&s, t->src[k], -1);
        }
        names_add(&s, t->view_src, -1);
    }
    for (int i = 0; i < s.n; i++) {
        dump_tensor(m, &s, s.tensors[i]);
    }
    for (int i = first; i < r->n_calls; i++) {
        const char result = call_table[r->calls[i].id].result;
        if (result == 'G' || result == 'W') {
            dump_graph(m, &s, i, m->values[i].g);
        }
    }
    // Programs choose the size of an arena by the memory that constructors use.
    text_add(o, "used_mem %zu\n", m->api->ggml_used_mem(m->ctx));
    free(s.tensors);
    free(s.calls);
    free(s.table);
}
