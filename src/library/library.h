// SPDX-License-Identifier: MIT
// library.h: the objects of the library libberth (berth-model.h). Its functions call model/, generate/ and view/, and turn their
// errors into berth_last_error().
#pragma once

#include "berth-model.h"
#include "generate/conversation.h"
#include "model/vocab.h"
#include "model/workbench.h"

struct berth_model {
    struct workbench w; // without a session
    ggml_abort_callback stop;
    void *stop_data;
};

struct berth_session {
    struct berth_model *model;
    struct session *session;
    const struct berth_chat *cached; // the chat whose messages are in the cache; NULL: none
};

// Returns whether the stop function of the model ends its work.
bool library_is_stopped(void *model);
// Returns GGML_STATUS_SUCCESS if ok. Otherwise sets the last error, and returns GGML_STATUS_ABORTED if is_stopped and
// GGML_STATUS_FAILED if not.
enum ggml_status library_status(bool ok, bool is_stopped, const struct model_error *error);

// ---- generate.c ----

// One call that generates text: the objects that the generator refers to.
struct library_call {
    const struct berth_generate_params *params;
    struct berth_session *session;
    struct generator generator;
    struct text_writer writer;
    struct sampler sampler;
    struct text_guide guide;
    int64_t seed;
    bool is_refused; // on_text returned false
};

// library_call_fini must be called in any case.
bool library_call_init(struct library_call *call, struct berth_session *session, const struct berth_generate_params *params,
    struct model_error *error);
void library_call_fini(struct library_call *call);
// Stores the result, which may be NULL, and returns the status of the call.
enum ggml_status library_call_end(const struct library_call *call, const struct generate_result *made, bool ok,
    const struct model_error *error, struct berth_generate_result *result);
