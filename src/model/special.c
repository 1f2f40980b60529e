// SPDX-License-Identifier: MIT
// special.c: finds the special tokens that are spelled out in a text. Of overlapping tokens, the longest is taken; of equal sizes,
// the lowest id.
//
// Method: Aho and Corasick's trie of the reversed tokens, and one pass over the text from its end. The pass finds the longest token
// that begins at each byte. These tokens are candidates in a heap. If a candidate overlaps an accepted token, the next shorter
// token at the same byte replaces the candidate. The time does not depend on the number of special tokens.

#include "model/vocab.h"

#include <string.h>

// FOR_USER: only tokens of type TOKEN_USER.
enum { FOR_ALL, FOR_USER, N_KINDS };

struct special_node {
    uint32_t parent;
    uint32_t link;          // node of the longest proper suffix of its text
    uint32_t best[N_KINDS]; // node of the longest token that is the text of this node or a suffix of it; 0: none
    int32_t token;          // token that ends at this node; -1: none
    uint8_t byte;           // byte on the edge from the parent
};

// Node 0 is the root.
struct special_trie {
    struct special_node *nodes;
    uint32_t n_nodes;
    uint32_t *slots; // [n_slots] hash table from (parent, byte) to node; 0: free
    size_t n_slots;
    struct berth_siphash_key key; // hash key
};

static bool is_special(const struct vocab *v, int32_t id, bool with_control) {
    return v->types[id] == TOKEN_USER || (with_control && (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN));
}

// Of several tokens with the same text, only the one that vocab_find returns is in the trie.
static bool is_indexed(const struct vocab *v, int32_t id) {
    return is_special(v, id, true) && v->tokens.sizes[id] > 0 && vocab_find(v, v->tokens.texts[id], v->tokens.sizes[id]) == id;
}

// ---- the trie ----

static size_t edge_slot(const struct special_trie *t, uint32_t parent, uint8_t byte) {
    const uint64_t edge = (uint64_t) parent << 8 | byte;
    size_t i = (size_t) berth_siphash_of(&t->key, &edge, sizeof edge) & (t->n_slots - 1);
    for (; t->slots[i] != 0; i = (i + 1) & (t->n_slots - 1)) {
        const struct special_node *node = &t->nodes[t->slots[i]];
        if (node->parent == parent && node->byte == byte) {
            break;
        }
    }
    return i;
}

static void token_add(struct special_trie *t, const char *text, uint32_t size, int32_t id) {
    uint32_t at = 0;
    for (uint32_t i = size; i-- > 0;) {
        const uint8_t byte = (uint8_t) text[i];
        const size_t slot = edge_slot(t, at, byte);
        if (t->slots[slot] == 0) {
            t->slots[slot] = t->n_nodes;
            t->nodes[t->n_nodes++] = (struct special_node){.parent = at, .byte = byte, .token = -1};
        }
        at = t->slots[slot];
    }
    t->nodes[at].token = id;
}

// Returns the next node of the search. Follows suffix links until a node has an edge for the byte.
static uint32_t node_step(const struct special_trie *t, uint32_t node, uint8_t byte) {
    for (;; node = t->nodes[node].link) {
        const uint32_t next = t->slots[edge_slot(t, node, byte)];
        if (next != 0 || node == 0) {
            return next;
        }
    }
}

// Sorts by depth: the parent and the suffixes of a node precede the node. depths and order have n_nodes + 1 entries.
static void nodes_order(const struct special_trie *t, uint32_t *depths, uint32_t *order, uint32_t *starts, uint32_t max_depth) {
    memset(starts, 0, ((size_t) max_depth + 2) * sizeof *starts);
    depths[0] = 0;
    for (uint32_t i = 1; i < t->n_nodes; i++) { // parents have lower numbers than their children
        depths[i] = depths[t->nodes[i].parent] + 1;
        starts[depths[i] + 1]++;
    }
    for (uint32_t d = 0; d <= max_depth; d++) {
        starts[d + 1] += starts[d];
    }
    for (uint32_t i = 1; i < t->n_nodes; i++) {
        order[starts[depths[i]]++] = i;
    }
}

static void links_make(struct special_trie *t, const struct vocab *v, const uint32_t *order) {
    for (uint32_t i = 0; i + 1 < t->n_nodes; i++) {
        struct special_node *node = &t->nodes[order[i]];
        node->link = node->parent == 0 ? 0 : node_step(t, t->nodes[node->parent].link, node->byte);
        for (int kind = 0; kind < N_KINDS; kind++) {
            const bool is_token = node->token >= 0 && is_special(v, node->token, kind == FOR_ALL);
            node->best[kind] = is_token ? order[i] : t->nodes[node->link].best[kind];
        }
    }
}

static bool trie_make(struct special_trie *t, const struct vocab *v, size_t size) {
    t->key = berth_siphash_key_new(t);
    t->n_slots = 16;
    while (t->n_slots < 2 * size) {
        t->n_slots *= 2;
    }
    t->nodes = berth_malloc((size + 1) * sizeof *t->nodes);
    t->slots = berth_calloc(t->n_slots, sizeof *t->slots);
    uint32_t *depths = berth_malloc((size + 1) * sizeof *depths), *order = berth_malloc((size + 1) * sizeof *order);
    uint32_t *starts = berth_malloc((v->max_size + 2) * sizeof *starts);
    const bool ok = t->nodes != NULL && t->slots != NULL && depths != NULL && order != NULL && starts != NULL;
    if (ok) {
        t->nodes[0] = (struct special_node){.token = -1};
        t->n_nodes = 1;
        for (int32_t i = 0; i < v->n_tokens; i++) {
            if (is_indexed(v, i)) {
                token_add(t, v->tokens.texts[i], v->tokens.sizes[i], i);
            }
        }
        nodes_order(t, depths, order, starts, (uint32_t) v->max_size);
        links_make(t, v, order);
    }
    berth_free(depths);
    berth_free(order);
    berth_free(starts);
    return ok;
}

bool specials_init(struct vocab *v) {
    size_t size = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size += is_indexed(v, i) ? v->tokens.sizes[i] : 0;
    }
    if (size == 0) {
        return true;
    }
    v->specials = size < UINT32_MAX ? berth_calloc(1, sizeof *v->specials) : NULL;
    return v->specials != NULL && trie_make(v->specials, v, size);
}

void specials_free(struct special_trie *t) {
    if (t != NULL) {
        berth_free(t->nodes);
        berth_free(t->slots);
    }
    berth_free(t);
}

// ---- candidates: a heap with the best candidate on top ----

struct candidate {
    uint32_t node;
    uint32_t at; // offset in the text
    uint32_t size;
    int32_t id;
};

struct candidates {
    const struct vocab *v;
    struct candidate *heap;
    size_t n;
};

static bool is_better(const struct candidate *a, const struct candidate *b) {
    if (a->size != b->size) {
        return a->size > b->size;
    }
    return a->id != b->id ? a->id < b->id : a->at < b->at;
}

static struct candidate candidate_of(const struct vocab *v, uint32_t node, uint32_t at) {
    const int32_t id = v->specials->nodes[node].token;
    return (struct candidate){node, at, v->tokens.sizes[id], id};
}

static void heap_sink(struct candidates *c, size_t i) {
    const struct candidate moved = c->heap[i];
    for (size_t k; (k = 2 * i + 1) < c->n; i = k) {
        k += k + 1 < c->n && is_better(&c->heap[k + 1], &c->heap[k]);
        if (!is_better(&c->heap[k], &moved)) {
            break;
        }
        c->heap[i] = c->heap[k];
    }
    c->heap[i] = moved;
}

// found: the result of specials_find, for the tokens accepted so far. Returns whether no accepted token overlaps the n bytes from
// i on. Accepted tokens have at least n bytes, so the first and the last byte suffice.
static bool is_free(const int32_t *found, size_t i, size_t n) {
    return found[i] == SPECIAL_NONE && found[i + n - 1] == SPECIAL_NONE;
}

// Accepts the best candidate, or replaces it by the next shorter token at the same byte.
static void best_resolve(struct candidates *c, int kind, int32_t *found) {
    const struct candidate best = c->heap[0];
    const struct special_node *nodes = c->v->specials->nodes;
    uint32_t node = 0;
    if (is_free(found, best.at, best.size)) {
        for (uint32_t k = 1; k < best.size; k++) {
            found[best.at + k] = SPECIAL_INSIDE;
        }
        found[best.at] = best.id;
    } else if (found[best.at] == SPECIAL_NONE) {
        node = nodes[nodes[best.node].link].best[kind];
        while (node != 0 && found[best.at + c->v->tokens.sizes[nodes[node].token] - 1] != SPECIAL_NONE) {
            node = nodes[nodes[node].link].best[kind];
        }
    }
    c->heap[0] = node != 0 ? candidate_of(c->v, node, best.at) : c->heap[--c->n];
    heap_sink(c, 0);
}

int32_t *specials_find(const struct vocab *v, const char *text, size_t size, bool with_control) {
    const int kind = with_control ? FOR_ALL : FOR_USER;
    int32_t *found = berth_malloc((size + 1) * sizeof *found); // at first, the node of the longest token that begins at each byte
    size_t n = 0;
    if (found == NULL) {
        return NULL;
    }
    for (size_t i = size, node = 0; i-- > 0;) {
        node = v->specials != NULL ? node_step(v->specials, (uint32_t) node, (uint8_t) text[i]) : 0;
        found[i] = v->specials != NULL ? (int32_t) v->specials->nodes[node].best[kind] : 0;
        n += found[i] != 0;
    }
    struct candidates c = {.v = v, .heap = n > 0 ? berth_malloc(n * sizeof *c.heap) : NULL};
    if (n > 0 && c.heap == NULL) {
        berth_free(found);
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        if (found[i] != 0) {
            c.heap[c.n++] = candidate_of(v, (uint32_t) found[i], (uint32_t) i);
        }
        found[i] = SPECIAL_NONE;
    }
    for (size_t i = c.n / 2; i-- > 0;) {
        heap_sink(&c, i);
    }
    while (c.n > 0) {
        best_resolve(&c, kind, found);
    }
    berth_free(c.heap);
    return found;
}
