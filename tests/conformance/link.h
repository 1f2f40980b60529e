// SPDX-License-Identifier: MIT
// link.h: the reference in a process of its own. Recipes go there, outcomes come back; if it dies, the next recipe starts a
// new one. Its program, conformance-oracle, is built without sanitizers: they and the reference do not mix.
#pragma once

#include "machine.h"

#include "support/child.h"

struct link {
    const char *program; // conformance-oracle
    const char *library; // the reference's libggml-base.so
    struct child child;
};

void link_run(struct link *l, const struct recipe *r, struct outcome *o);
void link_close(struct link *l);
