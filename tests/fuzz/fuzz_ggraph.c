// SPDX-License-Identifier: MIT
// fuzz_ggraph.c: passes any bytes to the reader of captured graphs and the result to the allocator. There must be no crash, and
// every refusal must have a message. If items were read, they must be planned, or planning must be refused with a message.

#include "fuzz/fuzz.h"
#include "view/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void plan(const struct berth_plan_set *set) {
    const int64_t n = set->n_items;
    uint64_t *offsets = malloc((set->n_items + 1) * sizeof *offsets);
    if (offsets == NULL) {
        return;
    }
    berth_clear_error();
    if (berth_plan_solve(set->items, n, NULL, offsets, NULL) == GGML_STATUS_SUCCESS) {
        expect(berth_plan_check(set->items, n, NULL, offsets, NULL) == GGML_STATUS_SUCCESS, "invalid plan");
    } else {
        expect(berth_last_error()[0] != '\0', "planning failed without a message");
    }
    free(offsets);
}

// The name of a file in memory that is rewritten for each input. Files on a disk would take most of the time.
static char path[64];

static int file_make(void) {
    const int fd = memfd_create("fuzz_ggraph", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    ggml_log_set(quiet, NULL);
    if (fd < 0) {
        fd = file_make();
        expect(fd >= 0, "cannot create a file in memory");
    }
    expect(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t) size, "cannot write the file in memory");
    struct view_plan read = {0}; // has no memory limit (budget), so view_plan_read_graph sets only read.set
    berth_clear_error();
    const enum ggml_status status = view_plan_read_graph(path, &read);
    expect((status == GGML_STATUS_SUCCESS) == (read.set != NULL), "status and set disagree");
    expect(read.set != NULL || berth_last_error()[0] != '\0', "refused without a message");
    if (read.set != NULL) {
        plan(read.set);
        berth_plan_set_free(read.set);
    }
    return 0;
}
