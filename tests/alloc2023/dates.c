// SPDX-License-Identifier: MIT
// dates.c: programs of three dates run in one process. Each creates a backend, an allocator and a scheduler of its date, and all
// exist at the same time. This file is compiled once per date, and once without a date, which gives main.

#ifdef BERTH_2023
#    include "guest.h"
#    include "program.h"

#    if BERTH_2023 >= 202402
#        define PART part_202402
#    elif BERTH_2023 >= 202312
#        define PART part_202312
#    else
#        define PART part_202311
#    endif

void PART(int step);

// Measures at step 0, computes at step 1, frees everything at step 2.
void PART(int step) {
    static ggml_backend_t backends[2];
    static ggml_backend_sched_t sched;
    if (step == 0) {
        backends[0] = guest_init();
        backends[1] = ggml_backend_cpu_init();
#    if BERTH_2023 >= 202402
        sched = ggml_backend_sched_new(backends, NULL, 2, 0);
#    else
        sched = ggml_backend_sched_new(backends, 2);
#    endif
        CHECK(sched != NULL);
    }
    if (step < 2) {
        struct model m = model_build();
        ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(sched, backends[1]);
        ggml_tallocr_alloc(talloc, m.x);
        ggml_tallocr_alloc(talloc, m.b);
        for (int i = 0; i < m.graph->n_nodes; i++) {
            if (ggml_backend_supports_op(backends[0], m.graph->nodes[i])) {
                ggml_backend_sched_set_node_backend(sched, m.graph->nodes[i], backends[0]);
            }
        }
        if (step == 0) {
            ggml_backend_sched_init_measure(sched, m.graph);
        } else {
            model_set(&m);
            ggml_backend_sched_graph_compute(sched, m.graph);
            model_check(&m);
            CHECK(guest.n_computed > 0);
        }
        ggml_free(m.ctx);
        return;
    }
    ggml_backend_sched_free(sched);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    CHECK(guest.n_buffers == 0);
}
#else
void part_202311(int step);
void part_202312(int step);
void part_202402(int step);

int main(void) {
    for (int step = 0; step < 3; step++) {
        part_202311(step);
        part_202312(step);
        part_202402(step);
    }
    return 0;
}
#endif
