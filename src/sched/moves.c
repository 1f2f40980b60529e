// SPDX-License-Identifier: MIT
// moves.c: moves of a graph under a budget, beside its other nodes: a copier (copier.c) makes them in their order, one at a time.
//
//   own      [make a] [ ......... ] | [ ... ] [reads b] ...
//   copier            [a out ->     ]   [b in ->]
//
// 1. What goes out is copied from the split on that made it; it is over at its place in the graph, behind which its memory is
//    another's. What comes back is copied from its place on, where its memory is free, and is over before its first reader.
// 2. The other backend's memory is touched by moves, whose order is that of the graph, so that it is free when they come to it;
//    and by splits that read or write there for other reasons. Such a split waits for the moves before it, and the moves behind
//    it for the split.
// 3. With several graphs in flight, while somebody watches, where a move is not from the own backend to the other or back, or
// where
//    a copier has no room for them, all moves are made in a row, by run.c.

#include "sched/sched.h"

#include <string.h>

// ---- which ----

// The row that a move reads, if that is all of a value that the backend made; else -1.
static int32_t move_src(const struct sched_memo *memo, int32_t r, int backend) {
    const struct record_row *row = &memo->rec.rows[r];
    const int32_t s = row->n_src == 1 ? memo->rec.srcs[row->src] : -1;
    const bool is_plain = s >= 0 && s < r && sched_base(memo, s) == s && sched_base(memo, r) == r && !memo->rows[s].is_placed &&
                          !memo->rows[s].is_empty && !memo->rows[r].is_placed;
    return is_plain && memo->rows[s].backend == backend && sched_nbytes(memo, s) == sched_nbytes(memo, r) ? s : -1;
}

// The backends of the first move; false: there is none.
static bool ends_find(const struct sched_memo *memo, int *own, int *other) {
    for (int32_t r = 0; r < memo->rec.n_nodes; r++) {
        if (!memo->rows[r].is_empty && record_move(&memo->rec, r) == BERTH_MOVE_OUT) {
            const int32_t s = memo->rec.rows[r].n_src == 1 ? memo->rec.srcs[memo->rec.rows[r].src] : -1;
            *own = s >= 0 ? memo->rows[s].backend : -1;
            *other = memo->rows[r].backend;
            return *own >= 0 && *other >= 0 && *own != *other;
        }
    }
    return false;
}

// Behind a move, and behind what is moved out, a split begins; so it does at the first reader of what came back.
static bool starts_find(const struct sched_memo *memo, const struct sched_copier *copier, struct sched_moves *moves) {
    bool cut = false;
    for (int32_t r = 0; r < memo->rec.n_nodes; r++) {
        const enum berth_move kind = record_move(&memo->rec, r);
        if (memo->rows[r].is_empty) {
            continue;
        }
        moves->starts[r] = moves->starts[r] || cut || kind != BERTH_MOVE_NONE;
        cut = kind != BERTH_MOVE_NONE || moves->is_out[r] > 0;
        for (int32_t k = memo->rec.rows[r].src; k < memo->rec.rows[r].src + memo->rec.rows[r].n_src; k++) {
            const int32_t base = sched_base(memo, memo->rec.srcs[k]);
            if (base < r && record_move(&memo->rec, base) == BERTH_MOVE_IN && moves->is_read[base] == 0) {
                moves->is_read[base] = 1;
                moves->starts[r] = true;
            }
        }
        if (kind != BERTH_MOVE_NONE && (memo->rows[r].backend != (kind == BERTH_MOVE_OUT ? copier->other : copier->own) ||
                                           move_src(memo, r, kind == BERTH_MOVE_OUT ? copier->own : copier->other) < 0)) {
            return false;
        }
    }
    return true;
}

bool sched_moves_find(struct ggml_backend_sched *sched, struct sched_memo *memo, struct sched_moves *moves) {
    const size_t n_rows = (size_t) memo->rec.n_rows + 1;
    int own, other;
    memo->n_moves = 0;
    memo->is_row = false;
    if (memo->n_slots > 1 || sched->moves_in_a_row || !ends_find(memo, &own, &other) || !sched_copier_open(sched, own, other)) {
        return false;
    }
    memset(moves->starts, 0, n_rows * sizeof moves->starts[0]);
    memset(moves->is_read, 0, n_rows * sizeof moves->is_read[0]);
    memset(moves->is_out, 0, n_rows * sizeof moves->is_out[0]);
    for (int32_t r = 0; r < memo->rec.n_nodes; r++) { // what is moved out is marked
        const int32_t s = record_move(&memo->rec, r) == BERTH_MOVE_OUT ? move_src(memo, r, own) : -1;
        if (s >= 0) {
            moves->is_out[s] = 1;
        }
    }
    return starts_find(memo, &sched->copier, moves);
}

// Splits that are moves become the copier's.
bool sched_moves_list(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    memo->own = sched->copier.own;
    memo->other = sched->copier.other;
    for (int32_t s = 0; s < memo->n_splits; s++) {
        struct sched_split *split = &memo->splits[s];
        for (int32_t i = split->i_start; i < split->i_end && !split->is_beside; i++) {
            if (memo->rows[i].is_empty || record_move(&memo->rec, i) == BERTH_MOVE_NONE) {
                continue;
            }
            if (!berth_grow((void **) &memo->moves, &memo->moves_cap, (size_t) memo->n_moves + 1, sizeof memo->moves[0])) {
                return false;
            }
            memo->moves[memo->n_moves++] = i;
            split->is_beside = true;
        }
    }
    memo->is_row = !sched_copier_room(sched, memo->n_moves); // as no copier could
    return true;
}

// ---- when ----

static int32_t max(int32_t a, int32_t b) {
    return a > b ? a : b;
}

// Does the row lie in the other backend's memory? What a node takes over from an input can lie there too, so that its backend
// does not tell.
static bool is_others(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int32_t row) {
    const int32_t base = sched_base(memo, row);
    ggml_backend_buffer_t buffer = memo->rec.tensors[base]->buffer;
    return !memo->rows[base].is_placed && (buffer == NULL || ggml_backend_buffer_get_type(buffer) == sched->bufts[memo->other]);
}

// Does a split that is no move touch the other backend's memory? *last: the last move whose value it reads.
static bool split_look(const struct ggml_backend_sched *sched, const struct sched_memo *memo, const int32_t *number,
    const struct sched_split *split, int32_t *last) {
    bool touches = split->backend != memo->own;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        touches = touches || is_others(sched, memo, memo->copies[i].row) || memo->copies[i].backend != memo->own;
    }
    for (int32_t i = split->i_start; i < split->i_end; i++) {
        const int32_t r = sched_order(memo, i);
        const struct record_row *row = &memo->rec.rows[r];
        touches = touches || (!memo->rows[r].is_empty && is_others(sched, memo, r));
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            const int32_t s = memo->rec.srcs[k];
            *last = max(*last, number[sched_base(memo, s)]);
            touches = touches || is_others(sched, memo, s);
        }
    }
    return touches;
}

// The split before which a move is given, if those before it are given before `given`.
static int32_t move_give(const struct sched_memo *memo, const int32_t *made_in, int32_t move, int32_t s, int32_t given) {
    const bool is_out = record_move(&memo->rec, move) == BERTH_MOVE_OUT;
    return is_out ? max(given, made_in[memo->rec.srcs[memo->rec.rows[move].src]] + 1) : s;
}

bool sched_moves_place(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    const size_t n_rows = (size_t) memo->rec.n_rows + 1;
    int32_t *made_in = sched_scratch(sched, 2 * n_rows * sizeof made_in[0]); // split of a node
    int32_t *number = made_in + n_rows;                                      // of what comes back: its move, from 1; 0: none
    int32_t given = 0, n = 0, over = 0;
    if (made_in == NULL) {
        return false;
    }
    memset(made_in, 0, 2 * n_rows * sizeof made_in[0]);
    for (int32_t s = 0; s < memo->n_splits; s++) {
        memo->splits[s].n_given = 0;
    }
    for (int32_t s = 0; s < memo->n_splits; s++) {
        struct sched_split *split = &memo->splits[s];
        for (int32_t i = split->i_start; i < split->i_end; i++) {
            made_in[sched_order(memo, i)] = s;
        }
        if (split->is_beside) {
            const int32_t move = memo->moves[n++];
            const bool is_out = record_move(&memo->rec, move) == BERTH_MOVE_OUT;
            given = move_give(memo, made_in, move, s, given);
            number[move] = is_out ? 0 : n;
            memo->splits[given].n_given = n;
            over = is_out ? n : over; // at its place: nobody may go on
        } else if (split_look(sched, memo, number, split, &over)) {
            over = n;
            given = s + 1;
        }
        split->n_over = over;
    }
    for (int32_t s = 1; s < memo->n_splits; s++) {
        memo->splits[s].n_given = max(memo->splits[s].n_given, memo->splits[s - 1].n_given);
    }
    for (int32_t i = 0; i < memo->n_moves; i++) { // what goes out has to lie there
        const int32_t move = memo->moves[i];
        memo->is_row = memo->is_row || (record_move(&memo->rec, move) == BERTH_MOVE_OUT && !is_others(sched, memo, move));
    }
    return true;
}

// ---- while the graph runs ----

void sched_moves_before(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct sched_split *split) {
    struct sched_copier *copier = &sched->copier;
    while (copier->n_given < split->n_given) {
        struct ggml_tensor *node = memo->rec.tensors[memo->moves[copier->n_given]];
        sched_wait_but(sched, copier->own);
        sched_copier_give(sched, berth_move_of(node), node->src[0], node);
        sched->stats.n_copies_made++;
        sched->stats.n_beside++;
        sched->stats.copy_bytes += (int64_t) ggml_nbytes(node);
    }
    if (split->is_beside) {
        return;
    }
    if (split->backend != copier->own) {
        sched_copier_drain(sched);
    } else if (copier->n_over < split->n_over) {
        sched_copier_await(sched, split->n_over);
    }
}
