// SPDX-License-Identifier: MIT
// machine.c: runs a recipe call by call. After aborts and signals, handlers jump back to machine_run. All tensors are in the
// machine's arena, so a jump leaks nothing. Only one machine may run at a time in a process, because handlers use static
// variables.
#include "machine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUN_SECONDS 20                // a recipe that takes longer counts as hanging
#define ARENA_SIZE ((size_t) 1 << 30) // reserved; only pages of tensors are used

static sigjmp_buf escape;
static volatile sig_atomic_t running;
static volatile sig_atomic_t escape_signal; // 0: the abort callback
static char escape_message[256];

static void on_abort(const char *message) {
    if (!running) {
        return;
    }
    snprintf(escape_message, sizeof(escape_message), "%s", message);
    escape_signal = 0;
    siglongjmp(escape, 1);
}

static void on_signal(int sig) {
    if (!running) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    escape_signal = sig;
    siglongjmp(escape, 1);
}

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void) level, (void) text, (void) user;
}

bool machine_init(struct machine *m, const struct api *api) {
    memset(m, 0, sizeof(*m));
    if (api->ggml_init == NULL || api->ggml_free == NULL) {
        return false;
    }
    m->api = api;
    m->arena_size = ARENA_SIZE;
    m->arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->arena == MAP_FAILED) {
        m->arena = NULL;
        return false;
    }
    static char stack[64 << 10]; // a separate stack lets the handler run after a stack overflow
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGALRM};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        sigaction(signals[i], &action, NULL);
    }
    if (api->ggml_set_abort_callback != NULL) {
        api->ggml_set_abort_callback(on_abort);
    }
    if (api->ggml_log_set != NULL) {
        api->ggml_log_set(on_log, NULL);
    }
    return true;
}

void machine_fini(struct machine *m) {
    if (m->arena != NULL) {
        munmap(m->arena, m->arena_size);
    }
    free(m->values);
    free(m->views);
    memset(m, 0, sizeof(*m));
}

void text_add(struct outcome *o, const char *fmt, ...) {
    for (;;) {
        const int room = o->text_alloc - o->n_text;
        va_list args;
        va_start(args, fmt);
        const int n = vsnprintf(room > 0 ? o->text + o->n_text : NULL, (size_t) (room > 0 ? room : 0), fmt, args);
        va_end(args);
        if (n < room) {
            o->n_text += n;
            return;
        }
        o->text_alloc = 2 * (o->text_alloc + n) + 4096;
        o->text = realloc(o->text, (size_t) o->text_alloc);
        if (o->text == NULL) {
            abort();
        }
    }
}

void outcome_fini(struct outcome *o) {
    free(o->text);
    memset(o, 0, sizeof(*o));
}

static void outcome_set(struct outcome *o, enum outcome_kind kind, int at, const char *message) {
    o->kind = kind;
    o->at = at;
    snprintf(o->message, sizeof(o->message), "%s", message);
}

// Sets the values of all calls to NULL, so that a reference to a call without a result is NULL.
static void machine_clear(struct machine *m, const struct recipe *r) {
    if (r->n_calls + 1 > m->n_values_alloc) {
        m->n_values_alloc = 2 * r->n_calls + 64;
        m->values = realloc(m->values, (size_t) m->n_values_alloc * sizeof(*m->values));
        m->views = realloc(m->views, (size_t) m->n_values_alloc * sizeof(*m->views));
        if (m->values == NULL || m->views == NULL) {
            abort();
        }
    }
    memset(m->values, 0, (size_t) (r->n_calls + 1) * sizeof(*m->values));
}

static void run_calls(struct machine *m, const struct recipe *r, struct outcome *o, volatile int *at) {
    const struct api *api = m->api;
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->calls[i];
        *at = i;
        if (!api_has(api, c->id)) {
            if (o->kind == OUTCOME_DONE) {
                outcome_set(o, OUTCOME_MISSING, i, call_table[c->id].name);
            }
            return;
        }
        call_invoke(m, c, &m->values[i]);
        const char result = call_table[c->id].result;
        if (api->berth_is_poison == NULL || o->kind != OUTCOME_DONE) {
            continue;
        }
        // Poison is a failure of the call that returned it. Later calls still run, because they must accept poison.
        const struct ggml_tensor *t = result == 'T' ? m->values[i].t : NULL;
        if (t != NULL && api->berth_is_poison(t)) {
            const char *error = api->berth_last_error != NULL ? api->berth_last_error() : "";
            outcome_set(o, OUTCOME_FAILED, i, error);
            o->silent = error[0] == 0;
        }
    }
}

void machine_run(struct machine *m, const struct recipe *r, struct outcome *o) {
    machine_clear(m, r);
    o->kind = OUTCOME_DONE;
    o->at = -1;
    o->silent = 0;
    o->n_text = 0;
    o->message[0] = 0;
    m->outcome = o;
    m->ctx = NULL;
    if (m->api->berth_clear_error != NULL) {
        m->api->berth_clear_error();
    }
    volatile int at = -1;
    alarm(RUN_SECONDS);
    if (sigsetjmp(escape, 1) == 0) {
        running = 1;
        m->ctx =
            m->api->ggml_init((struct ggml_init_params){.mem_size = r->mem_size < m->arena_size ? r->mem_size : m->arena_size,
                .mem_buffer = m->arena,
                .no_alloc = r->no_alloc});
        if (m->ctx == NULL) {
            outcome_set(o, OUTCOME_FAILED, -1, "ggml_init returned NULL");
        } else if (r->probe != PROBE_NONE) {
            probe_run(m, r);
        } else {
            run_calls(m, r, o, &at);
            if (o->kind == OUTCOME_DONE) {
                at = r->n_calls;
                machine_dump(m, r);
            }
        }
        if (m->ctx != NULL) {
            m->api->ggml_free(m->ctx);
        }
        running = 0;
    } else {
        running = 0;
        if (escape_signal == 0) {
            outcome_set(o, m->api->berth_is_poison != NULL ? OUTCOME_CRASHED : OUTCOME_FAILED, at, escape_message);
        } else {
            outcome_set(o, OUTCOME_CRASHED, at, strsignal(escape_signal));
        }
    }
    alarm(0);
    if (o->kind != OUTCOME_DONE) {
        o->n_text = 0;
    }
}
