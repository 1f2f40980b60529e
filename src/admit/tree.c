// SPDX-License-Identifier: MIT
// tree.c: the tree of shared pages. A shared page counts once, until the last sequence that holds it ends.
//
// Sequence 1 shares the first k pages of sequence 0:
//
//     leaf 0 (all pages of 0)    ->    shared node (k pages)
//                                          |-- leaf 0 (the other pages of 0)
//                                          `-- leaf 1 (the other pages of 1)
//
// When one of them ends, the shared node has one child left and is merged into it. So there are fewer shared nodes than leaves.

#include "admit/state.h"
#include "base/base.h"
#include "base/min.h"

void admit_tree_init(struct admit *a) {
    const int32_t n_leaves = a->params.n_running;
    a->i_unused = n_leaves;
    for (int32_t i = n_leaves; i < 2 * n_leaves; i++) {
        a->nodes[i].next = i + 1 < 2 * n_leaves ? i + 1 : -1;
    }
}

int32_t admit_tree_find(const struct admit *a, int32_t leaf, int64_t i) {
    int32_t at = leaf;
    while (a->nodes[at].base > i) {
        at = a->nodes[at].parent;
    }
    return at;
}

static void child_add(struct admit *a, int32_t parent, int32_t i) {
    struct admit_node *node = &a->nodes[i];
    node->parent = parent;
    node->previous = -1;
    node->next = -1;
    if (parent < 0) {
        return;
    }
    node->next = a->nodes[parent].child;
    a->nodes[parent].child = i;
    if (node->next >= 0) {
        a->nodes[node->next].previous = i;
    }
}

static void child_remove(struct admit *a, int32_t i) {
    const struct admit_node *node = &a->nodes[i];
    if (node->parent < 0) {
        return;
    }
    if (node->previous >= 0) {
        a->nodes[node->previous].next = node->next;
    } else {
        a->nodes[node->parent].child = node->next;
    }
    if (node->next >= 0) {
        a->nodes[node->next].previous = node->previous;
    }
}

static bool is_leaf(const struct admit *a, int32_t i) {
    return i < a->params.n_running;
}

// Moves the first n pages of a node into a new node above it. Returns the new node.
static int32_t node_split(struct admit *a, int32_t i, int32_t n) {
    const int32_t upper = a->i_unused;
    BERTH_ASSERT(upper >= 0); // there are fewer shared nodes than leaves
    struct admit_node *node = &a->nodes[i];
    a->i_unused = a->nodes[upper].next;
    a->nodes[upper] = (struct admit_node){.end = node->end, .base = node->base, .n_pages = n, .child = -1};
    child_remove(a, i);
    child_add(a, node->parent, upper);
    child_add(a, upper, i);
    node->base += n;
    if (!is_leaf(a, i)) {
        node->n_pages -= n;
    }
    return upper;
}

void admit_tree_add(struct admit *a, int32_t leaf, int32_t above, int32_t n_shared, int64_t end) {
    int32_t parent = above;
    if (above >= 0) {
        const int32_t n = n_shared - a->nodes[above].base; // pages of `above` that the new leaf shares
        if (is_leaf(a, above) || n < a->nodes[above].n_pages) {
            parent = node_split(a, above, n);
        }
    }
    a->nodes[leaf] = (struct admit_node){.end = end, .base = n_shared, .child = -1};
    child_add(a, parent, leaf);
    for (int32_t i = parent; i >= 0 && a->nodes[i].end < end; i = a->nodes[i].parent) {
        a->nodes[i].end = end;
    }
}

// Puts the pages of a node that has one child into that child.
static void node_merge(struct admit *a, int32_t i) {
    const struct admit_node node = a->nodes[i];
    const int32_t child = node.child;
    child_remove(a, i);
    child_add(a, node.parent, child);
    a->nodes[child].base = node.base;
    if (!is_leaf(a, child)) {
        a->nodes[child].n_pages += node.n_pages;
    }
    a->nodes[i].next = a->i_unused;
    a->i_unused = i;
}

void admit_tree_remove(struct admit *a, int32_t leaf) {
    const int32_t parent = a->nodes[leaf].parent;
    child_remove(a, leaf);
    for (int32_t i = parent; i >= 0; i = a->nodes[i].parent) {
        struct admit_node *node = &a->nodes[i];
        int64_t end = a->now; // the pages are free from this step on, if no sequence holds them
        for (int32_t child = node->child; child >= 0; child = a->nodes[child].next) {
            end = max_i64(end, a->nodes[child].end);
        }
        if (end >= node->end) {
            break;
        }
        admit_ring_add(a, a->total, end - a->now, node->end - end, -node->n_pages);
        node->end = end;
    }
    if (parent >= 0 && a->nodes[a->nodes[parent].child].next < 0) {
        node_merge(a, parent);
    }
}
