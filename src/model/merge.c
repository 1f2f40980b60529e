// SPDX-License-Identifier: MIT
// merge.c: byte-pair encoding: neighbours become one piece, the cheapest pair first. Pairs wait in a heap; one whose pieces have
// changed since is dropped when its turn comes. Each merge adds at most two pairs: O(n log n).

#include "model/vocab.h"

struct pair {
    double cost;
    int32_t left, right;
    uint32_t size; // of both when the pair was made
};

struct merger {
    const char *text;
    struct merge_piece *pieces;
    struct pair *heap; // room for 3 * n_pieces: each piece begins with one pair, each merge adds two
    size_t n_heap;
    merge_cost_t cost;
    const void *user;
};

static bool is_before(const struct pair *a, const struct pair *b) {
    return a->cost < b->cost || (a->cost == b->cost && a->left < b->left);
}

static void heap_push(struct merger *m, struct pair pair) {
    size_t i = m->n_heap++;
    for (; i > 0 && is_before(&pair, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        m->heap[i] = m->heap[(i - 1) / 2];
    }
    m->heap[i] = pair;
}

static struct pair heap_pop(struct merger *m) {
    const struct pair best = m->heap[0], moved = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && is_before(&m->heap[child + 1], &m->heap[child])) {
            child++;
        }
        if (!is_before(&m->heap[child], &moved)) {
            break;
        }
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = moved;
    return best;
}

static void pair_try(struct merger *m, int32_t left, int32_t right) {
    if (left < 0 || right < 0) {
        return;
    }
    const struct merge_piece *a = &m->pieces[left], *b = &m->pieces[right];
    struct pair pair = {.left = left, .right = right, .size = a->size + b->size};
    if (m->cost(m->user, m->text + a->at, a->size, b->size, &pair.cost)) {
        heap_push(m, pair);
    }
}

static size_t pieces_start(struct merger *m, size_t size) {
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0; at < size; n++) {
        const size_t step = utf8_next(m->text + at, size - at, &c);
        m->pieces[n] = (struct merge_piece){(uint32_t) at, (uint32_t) step, (int32_t) n - 1, (int32_t) n + 1};
        at += step;
    }
    if (n > 0) {
        m->pieces[n - 1].next = -1;
    }
    return n;
}

struct merge_piece *merge_text(const char *text, size_t size, merge_cost_t cost, const void *user, size_t *n) {
    struct merger m = {.text = text, .cost = cost, .user = user};
    *n = 0;
    if (size > INT32_MAX / 4) {
        return NULL;
    }
    m.pieces = model_alloc_malloc((size + 1) * sizeof *m.pieces);
    m.heap = model_alloc_malloc((3 * size + 1) * sizeof *m.heap);
    if (m.pieces == NULL || m.heap == NULL) {
        model_alloc_free(m.pieces);
        model_alloc_free(m.heap);
        return NULL;
    }
    *n = pieces_start(&m, size);
    for (size_t i = 1; i < *n; i++) {
        pair_try(&m, (int32_t) i - 1, (int32_t) i);
    }
    while (m.n_heap > 0) {
        const struct pair pair = heap_pop(&m);
        struct merge_piece *a = &m.pieces[pair.left], *b = &m.pieces[pair.right];
        if (a->size == 0 || b->size == 0 || a->size + b->size != pair.size) {
            continue;
        }
        a->size += b->size;
        b->size = 0;
        a->next = b->next;
        if (b->next >= 0) {
            m.pieces[b->next].before = pair.left;
        }
        pair_try(&m, a->before, pair.left);
        pair_try(&m, pair.left, a->next);
    }
    model_alloc_free(m.heap);
    return m.pieces;
}
