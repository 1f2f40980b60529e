// SPDX-License-Identifier: MIT
// explain.c: why a request waits or is refused, as a text.

#include "admit/admit.h"

#include <stdio.h>

const char *admit_explain(const struct admit_reason *r, char *text, size_t size) {
    const long long n_need = r->n_need, n_have = r->n_have, i_step = r->i_step, n_wait = r->n_wait;
    switch (r->why) {
        case ADMIT_WHY_NONE: snprintf(text, size, "the request is admitted"); break;
        case ADMIT_WHY_PAGES:
            if (n_wait == 0) {
                snprintf(text, size, "the request alone needs %lld cache pages, and the cache has %lld", n_need, n_have);
            } else {
                snprintf(text, size,
                    "with the running requests, %lld cache pages are needed %lld steps from now, and the cache has %lld; the "
                    "request can "
                    "start in %lld steps or earlier",
                    n_need, i_step, n_have, n_wait);
            }
            break;
        case ADMIT_WHY_RUNNING:
            snprintf(text, size, "%lld requests run, which is the limit; the request can start in %lld steps or earlier", n_have,
                n_wait);
            break;
        case ADMIT_WHY_CONTEXT:
            snprintf(text, size, "prompt and new tokens are %lld tokens, and the context has %lld", n_need, n_have);
            break;
        case ADMIT_WHY_TOKENS:
            snprintf(text, size, "%lld tokens are requested, at least %lld is required", n_need, n_have);
            break;
        case ADMIT_WHY_CACHED:
            snprintf(text, size, "%lld cached or shared tokens are not a number of whole pages between 0 and %lld tokens", n_need,
                n_have);
            break;
        case ADMIT_WHY_SHARER:
            snprintf(text, size, "%lld tokens are to be shared with a sequence that has computed %lld", n_need, n_have);
            break;
    }
    return text;
}
