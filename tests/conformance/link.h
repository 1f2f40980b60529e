// SPDX-License-Identifier: MIT
// link.h: runs the reference in a separate process. If the process ends, the next recipe starts a new one. conformance-oracle is
// built without sanitizers, because these do not work with the reference.
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
