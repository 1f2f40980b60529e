// SPDX-License-Identifier: MIT
// backend_lifetime.c: lists of backends, in which the entry of a freed backend becomes NULL. The lists are needed because a
// program may free a backend before the object that uses it. For example, libllama frees its backends before its scheduler.

#include "backend/backend.h"
#include "base/lock.h"

static struct berth_lock watch_lock = BERTH_LOCK_INIT;
static struct berth_backend_list *watched;
BERTH_LOCK_ACROSS_FORK(watch_lock, 102)

void berth_backend_watch(struct berth_backend_list *list) {
    berth_lock_take(&watch_lock);
    list->next = watched;
    watched = list;
    berth_lock_drop(&watch_lock);
}

void berth_backend_unwatch(struct berth_backend_list *list) {
    berth_lock_take(&watch_lock);
    struct berth_backend_list **at = &watched;
    while (*at != NULL && *at != list) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = list->next;
    }
    berth_lock_drop(&watch_lock);
}

void berth_backend_is_gone(ggml_backend_t backend) {
    berth_lock_take(&watch_lock);
    for (struct berth_backend_list *list = watched; list != NULL; list = list->next) {
        for (int i = 0; i < list->n; i++) {
            if (list->backends[i] == backend) { // only matching entries are written, because other threads read their lists
                list->backends[i] = NULL;
            }
        }
    }
    berth_lock_drop(&watch_lock);
}
