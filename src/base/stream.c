// SPDX-License-Identifier: MIT
// stream.c: a stream whose bytes end up in memory. libc has one too, open_memstream, but when memory runs out while it grows it
// neither says so nor marks the stream: what was written is lost in silence, and closing it gives 0 and a NULL text.
// This one remembers, and the text goes through Berth's allocator.

#include "base/base.h"

#include <errno.h>
#include <string.h>

static ssize_t stream_write(void *cookie, const char *bytes, size_t size) {
    struct berth_stream *s = cookie;
    if (s->has_failed || size >= SIZE_MAX - s->size || !berth_grow((void **) &s->text, &s->cap, s->size + size + 1, 1)) {
        s->has_failed = true;
        errno = ENOMEM;
        return 0;
    }
    memcpy(s->text + s->size, bytes, size);
    s->size += size;
    return (ssize_t) size;
}

bool berth_stream_open(struct berth_stream *s) {
    *s = (struct berth_stream){0};
    s->file = fopencookie(s, "w", (cookie_io_functions_t){.write = stream_write});
    return s->file != NULL;
}

bool berth_stream_close(struct berth_stream *s) {
    bool ok = s->file != NULL;
    if (ok) {
        ok = fflush(s->file) == 0 && !ferror(s->file);
        ok = fclose(s->file) == 0 && ok && !s->has_failed;
    }
    ok = ok && berth_grow((void **) &s->text, &s->cap, s->size + 1, 1);
    s->file = NULL;
    if (!ok) {
        berth_stream_fini(s);
        errno = ENOMEM;
        return false;
    }
    s->text[s->size] = '\0';
    return true;
}

void berth_stream_fini(struct berth_stream *s) {
    if (s->file != NULL) {
        fclose(s->file);
    }
    berth_free(s->text);
    *s = (struct berth_stream){0};
}
