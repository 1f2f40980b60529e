// SPDX-License-Identifier: MIT
// test_record.c: compares a graph with its record after one change at a time, for a memory record and a full record (record.h
// defines both). It also tests the addresses that a match assigns, and their restoration if the graph differs.

#include "support/check.h"

#include "record/record.h"

struct sample {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *w, *a, *v, *b, *c; // w is not listed; v is a view of a
};

static struct sample sample_new(void) {
    struct sample m = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true})};
    m.graph = ggml_new_graph_custom(m.ctx, 32, false);
    m.x = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, 8, 4);
    m.w = ggml_new_tensor_2d(m.ctx, GGML_TYPE_F32, 8, 4);
    m.a = ggml_scale(m.ctx, m.x, 2.0f);
    m.v = ggml_view_2d(m.ctx, m.a, 8, 4, m.a->nb[1], 0);
    m.b = ggml_add(m.ctx, m.v, m.w);
    m.c = ggml_mul(m.ctx, m.b, m.a);
    struct ggml_tensor *const nodes[] = {m.a, m.v, m.b, m.c};
    memcpy(m.graph->nodes, nodes, sizeof nodes);
    m.graph->n_nodes = 4;
    m.graph->leafs[0] = m.x;
    m.graph->n_leafs = 1;
    return m;
}

static bool is_ours(void *user, const struct ggml_tensor *t) {
    return t->buffer != NULL && t->buffer == user;
}

// Returns a record of the sample's graph. ours: the argument of is_ours.
static struct record recorded(const struct sample *m, bool is_full_match, void *ours) {
    const struct record_rules rules = {.is_ours = is_ours, .user = ours};
    struct record rec = {.is_full_match = is_full_match, .column_size = 4};
    assert_int_equal(berth_record_build(&rec, m->graph, &rules), GGML_STATUS_SUCCESS);
    return rec;
}

static enum record_match compared(struct record *rec, const struct sample *m, void *ours) {
    const struct record_rules rules = {.is_ours = is_ours, .user = ours};
    return berth_record_match(rec, m->graph, &rules, NULL);
}

static void rows(void **state) {
    (void) state;
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        struct sample m = sample_new();
        struct record rec = recorded(&m, is_full_match, NULL);
        assert_int_equal(rec.n_rows, 6);
        assert_ptr_equal(rec.tensors[4], m.x);
        assert_ptr_equal(rec.tensors[5], m.w);
        assert_int_equal(rec.rows[1].view_src, 0);
        assert_int_equal(record_base(&rec, 1), 0);
        assert_int_equal(rec.rows[2].n_src, 2);
        assert_int_equal(rec.srcs[rec.rows[2].src + 1], 5);
        assert_int_equal(berth_record_find(&rec, m.w), 5);
        assert_int_equal(berth_record_find(&rec, m.c), 3);
        assert_int_equal(rec.rows[1].form >= 0, is_full_match); // a view takes no memory
        assert_false(berth_record_has_unknown_duplicates(&rec));
        berth_record_fini(&rec);
        ggml_free(m.ctx);
    }
}

// The first leaf has memory of the caller, and the last node, a cast, lists itself as a source.
static void rows_of_the_caller_and_of_casts(void **state) {
    (void) state;
    float memory[32];
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        struct sample m = sample_new();
        struct ggml_tensor *cast = ggml_cast(m.ctx, m.b, GGML_TYPE_F16);
        assert_ptr_equal(cast->src[1], cast);
        m.graph->nodes[m.graph->n_nodes++] = cast;
        m.x->data = memory;
        struct record rec = recorded(&m, is_full_match, NULL);
        assert_int_equal(rec.rows[5].is_foreign, !is_full_match); // x
        assert_false(rec.rows[6].is_foreign);
        assert_true(rec.rows[4].names_self);
        assert_int_equal(rec.srcs[rec.rows[4].src], 2);
        assert_int_equal(rec.srcs[rec.rows[4].src + 1], 4);
        berth_record_fini(&rec);
        ggml_free(m.ctx);
    }
}

static void nodes_out_of_order_are_refused(void **state) {
    (void) state;
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        struct sample m = sample_new();
        const struct record_rules rules = {.is_ours = is_ours};
        struct record rec = {.is_full_match = is_full_match};
        m.b->src[0] = m.c;
        berth_clear_error();
        assert_int_equal(berth_record_build(&rec, m.graph, &rules), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "node 2 of 4"));
        assert_non_null(strstr(berth_last_error(), "reads a result that is not computed yet"));
        assert_int_equal(rec.n_rows, 0);
        berth_record_fini(&rec);
        ggml_free(m.ctx);
    }
}

// The expected result of each change for a memory record and for a full record.
enum change { NOTHING, EDGE, OP, FLAG, PARAM, VIEW_OFFS, EXTENT, SOURCE, MEMORY, ORDER, LEAF, N_CHANGES };
static const struct {
    const char *name;
    enum record_match memory, whole;
} changes[N_CHANGES] = {
    [NOTHING] = {"nothing", RECORD_SAME, RECORD_SAME},
    [EDGE] = {"an edge", RECORD_DIFFERS, RECORD_DIFFERS},
    [OP] = {"an op", RECORD_DIFFERS, RECORD_DIFFERS},
    [FLAG] = {"an output", RECORD_DIFFERS, RECORD_DIFFERS},
    [PARAM] = {"a parameter", RECORD_SAME, RECORD_DIFFERS},
    [VIEW_OFFS] = {"where a view begins", RECORD_SAME, RECORD_DIFFERS},
    [EXTENT] = {"an extent", RECORD_RESHAPED, RECORD_DIFFERS},
    [SOURCE] = {"one source more", RECORD_DIFFERS, RECORD_DIFFERS},
    [MEMORY] = {"memory owner", RECORD_DIFFERS, RECORD_DIFFERS},
    [ORDER] = {"the order", RECORD_DIFFERS, RECORD_DIFFERS},
    [LEAF] = {"a leaf more", RECORD_DIFFERS, RECORD_DIFFERS},
};

static void change(struct sample *m, enum change what, float *memory) {
    switch (what) {
        case EDGE: m->c->src[1] = m->b; break;
        case OP: m->c->op = GGML_OP_SUB; break;
        case FLAG: ggml_set_output(m->b); break;
        case PARAM: m->a->op_params[0]++; break;
        case VIEW_OFFS: m->v->view_offs = 4; break;
        case EXTENT: m->c->ne[1] = 3; break;
        case SOURCE: m->c->src[5] = m->a; break;
        case MEMORY: m->x->data = memory; break;
        case ORDER:
            m->graph->nodes[2] = m->c;
            m->graph->nodes[3] = m->b;
            break;
        case LEAF: m->graph->leafs[m->graph->n_leafs++] = m->w; break;
        default: break;
    }
}

static void one_change(void **state) {
    (void) state;
    float memory[32];
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        for (int is_fresh = 0; is_fresh < 2; is_fresh++) { // 1: another graph of the same form is changed
            for (enum change what = NOTHING; what < N_CHANGES; what++) {
                struct sample m = sample_new(), other = sample_new();
                struct record rec = recorded(&m, is_full_match, NULL);
                struct sample *seen = is_fresh ? &other : &m;
                change(seen, what, memory);
                const enum record_match want = is_full_match ? changes[what].whole : changes[what].memory;
                if (compared(&rec, seen, NULL) != want) {
                    fail_msg("%s record, %s graph: wrong result for change %s", is_full_match ? "full" : "memory",
                        is_fresh ? "another" : "the same", changes[what].name);
                }
                if (want == RECORD_SAME) {
                    assert_int_equal(berth_record_find(&rec, seen->w), 5);
                }
                berth_record_fini(&rec);
                ggml_free(m.ctx);
                ggml_free(other.ctx);
            }
        }
    }
}

// Two graphs that list the same node twice match. A graph that lists each node once is distinguished from them.
static void listed_twice(void **state) {
    (void) state;
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        struct sample once = sample_new(), duplicates = sample_new(), again = sample_new();
        once.graph->nodes[once.graph->n_nodes++] = ggml_dup_tensor(once.ctx, once.x);
        once.graph->nodes[4]->op = GGML_OP_SCALE;
        once.graph->nodes[4]->src[0] = once.x;
        duplicates.graph->nodes[duplicates.graph->n_nodes++] = duplicates.a;
        again.graph->nodes[again.graph->n_nodes++] = again.a;
        memcpy(once.graph->nodes[4]->op_params, once.a->op_params, sizeof once.a->op_params);
        struct record of_once = recorded(&once, is_full_match, NULL), of_twice = recorded(&duplicates, is_full_match, NULL);
        assert_int_equal(of_twice.n_duplicates, 1);
        assert_int_equal(of_twice.rows[4].same_as, 0);
        assert_int_equal(compared(&of_twice, &again, NULL), RECORD_SAME);
        assert_int_equal(compared(&of_twice, &once, NULL), RECORD_DIFFERS);
        assert_int_equal(compared(&of_once, &duplicates, NULL), RECORD_SAME); // row by row both graphs are equal
        assert_true(berth_record_has_unknown_duplicates(&of_once));
        assert_int_equal(compared(&of_twice, &duplicates, NULL), RECORD_SAME);
        assert_false(berth_record_has_unknown_duplicates(&of_twice));
        berth_record_fini(&of_once);
        berth_record_fini(&of_twice);
        ggml_free(once.ctx);
        ggml_free(duplicates.ctx);
        ggml_free(again.ctx);
    }
}

static int n_init_calls;

static enum ggml_status count_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    (void) buffer;
    assert_true(t->view_src == NULL || t->view_src->buffer != NULL);
    n_init_calls++;
    return GGML_STATUS_SUCCESS;
}

static void placed_during_the_match(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) { // memory record; full record; full record with init_tensor
        struct sample m = sample_new(), other = sample_new();
        char memory[1024];
        struct ggml_backend_buffer buffer = {.iface = {.init_tensor = kind == 2 ? count_init_tensor : NULL}};
        struct record rec = recorded(&m, kind > 0, &buffer);
        struct record_place places[6];
        struct record_undo undo[6];
        for (int i = 0; i < 6; i++) {
            places[i] = (struct record_place){&buffer, memory + 128 * record_base(&rec, i)};
        }
        struct record_placer placer = {.places = places, .undo = undo, .may_write = true};
        const struct record_rules rules = {.is_ours = is_ours, .user = &buffer};
        other.c->op = GGML_OP_SUB; // the last compared node
        n_init_calls = 0;
        assert_int_equal(berth_record_match(&rec, other.graph, &rules, &placer), RECORD_DIFFERS);
        assert_null(other.a->buffer);
        assert_null(other.a->data);
        assert_null(other.v->buffer);
        other.c->op = GGML_OP_MUL;
        n_init_calls = 0;
        assert_int_equal(berth_record_match(&rec, other.graph, &rules, &placer), RECORD_SAME);
        assert_true(placer.is_done && placer.is_moved);
        assert_ptr_equal(other.a->data, memory);
        assert_ptr_equal(other.v->data, memory);
        assert_ptr_equal(other.w->data, memory + 5 * 128);
        assert_int_equal(n_init_calls, kind == 2 ? 6 : 0);
        assert_int_equal(berth_record_match(&rec, other.graph, &rules, &placer), RECORD_SAME);
        assert_true(placer.is_done && placer.is_moved == (kind == 0));
        other.b->data = memory; // in another buffer of the allocator: the graph is the same, but b is not at its planned address
        assert_int_equal(berth_record_match(&rec, other.graph, &rules, &placer), RECORD_SAME);
        assert_false(placer.is_done);
        berth_record_fini(&rec);
        ggml_free(m.ctx);
        ggml_free(other.ctx);
    }
}

// The caller's memory moves and moves back. Each match reports the change since the match before.
static void memory_that_moves_back(void **state) {
    (void) state;
    struct sample m = sample_new();
    char planned[1024], first[128], second[128];
    struct ggml_backend_buffer buffer = {0};
    m.x->data = first;
    struct record rec = recorded(&m, true, &buffer);
    struct record_place places[6] = {0};
    struct record_undo undo[6];
    for (int i = 0; i < 6; i++) {
        places[i] = (struct record_place){&buffer, planned + 128 * record_base(&rec, i)};
    }
    struct record_placer placer = {.places = places, .undo = undo, .may_write = true};
    const struct record_rules rules = {.is_ours = is_ours, .user = &buffer};
    void *const memory[] = {first, first, second, second, first, first};
    for (int i = 0; i < 6; i++) {
        m.x->data = memory[i];
        assert_int_equal(berth_record_match(&rec, m.graph, &rules, &placer), RECORD_SAME);
        assert_true(i == 0 || placer.is_moved == (memory[i] != memory[i - 1]));
    }
    berth_record_fini(&rec);
    ggml_free(m.ctx);
}

static void columns_stay(void **state) {
    (void) state;
    struct record rec = {.column_size = 4};
    assert_true(berth_record_reserve(&rec, 3, 1));
    int32_t *column = rec.columns;
    column[2] = 42;
    assert_true(berth_record_reserve(&rec, 1000, 500));
    column = rec.columns;
    assert_int_equal(column[2], 42);
    assert_null(rec.tensors[-1]);
    berth_record_fini(&rec);
}

static void lists_without_memory(void **state) {
    (void) state;
    struct sample m = sample_new();
    struct ggml_tensor *last = m.c;
    for (int i = 0; i < 20; i++) { // so that the list also grows when it is closed
        last = ggml_scale(m.ctx, last, 2.0f);
    }
    bool ok = false;
    berth_alloc_watch(true);
    for (int n = 1; !ok; n++) {
        struct record_list list = {0};
        berth_alloc_fail_at(n);
        ok = berth_record_list_add(&list, last) && berth_record_list_add(&list, last) && berth_record_list_add(&list, NULL) &&
             berth_record_list_close(&list);
        berth_alloc_fail_at(0);
        assert_true(n < 20 && list.n <= 26);
        for (int32_t i = 0; i < list.n; i++) {
            assert_int_equal(record_list_find(&list, list.at[i]), i);
        }
        assert_int_equal(ok, list.n == 26 && record_list_find(&list, m.x) >= 0 && record_list_find(&list, m.w) >= 0);
        berth_record_list_fini(&list);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_alloc_watch(false);
    ggml_free(m.ctx);
}

static void without_memory(void **state) {
    (void) state;
    for (int is_full_match = 0; is_full_match < 2; is_full_match++) {
        enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
        for (int n = 1; status != GGML_STATUS_SUCCESS; n++) {
            struct sample m = sample_new();
            const struct record_rules rules = {.is_ours = is_ours};
            struct record rec = {.is_full_match = is_full_match};
            m.graph->nodes[m.graph->n_nodes++] = m.a; // so that the list of duplicates is allocated too
            berth_alloc_fail_at(n);
            status = berth_record_build(&rec, m.graph, &rules);
            berth_alloc_fail_at(0);
            assert_true(status == GGML_STATUS_SUCCESS || (status == GGML_STATUS_ALLOC_FAILED && rec.n_rows == 0));
            assert_true(status != GGML_STATUS_SUCCESS || rec.n_duplicates == 1);
            assert_true(n < 20);
            berth_record_fini(&rec);
            ggml_free(m.ctx);
        }
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(rows_of_the_caller_and_of_casts),
        cmocka_unit_test(nodes_out_of_order_are_refused),
        cmocka_unit_test(one_change),
        cmocka_unit_test(listed_twice),
        cmocka_unit_test(placed_during_the_match),
        cmocka_unit_test(memory_that_moves_back),
        cmocka_unit_test(columns_stay),
        cmocka_unit_test(lists_without_memory),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
