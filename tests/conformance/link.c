// SPDX-License-Identifier: MIT
// link.c: sends recipes and receives outcomes over pipes. Structs are sent as bytes: both programs have the same source.
#include "link.h"

#include <stdlib.h>
#include <string.h>

void link_close(struct link *l) {
    child_close(&l->child);
}

static bool outcome_receive(int fd, struct outcome *o) {
    char *text = o->text;
    const int alloc = o->text_alloc;
    const bool ok = pipe_read(fd, o, sizeof(*o));
    o->text = text;
    o->text_alloc = alloc;
    if (!ok || o->n_text < 0) {
        return false;
    }
    if (o->n_text + 1 > o->text_alloc) {
        o->text_alloc = 2 * o->n_text + 4096;
        o->text = realloc(o->text, (size_t) o->text_alloc);
        if (o->text == NULL) {
            abort();
        }
    }
    o->text[o->n_text] = 0;
    return pipe_read(fd, o->text, (size_t) o->n_text);
}

void link_run(struct link *l, const struct recipe *r, struct outcome *o) {
    if (l->child.pid == 0 && !child_start(&l->child, (char *[]){(char *) l->program, (char *) l->library, NULL}, false)) {
        o->kind = OUTCOME_DIED;
        return;
    }
    if (!pipe_write(l->child.to, r, sizeof(*r)) || !pipe_write(l->child.to, r->calls, (size_t) r->n_calls * sizeof(*r->calls)) ||
        !outcome_receive(l->child.from, o)) {
        link_close(l);
        o->kind = OUTCOME_DIED;
        o->n_text = 0;
    }
}
