// SPDX-License-Identifier: MIT
// berth-model.h: language models: open a model file, convert text to tokens, generate text, chat, and compute embeddings. The
// functions are in the library libberth. The general rules of berth.h hold. docs/user/library.md has an example.
//
// A model, its sessions and its chats are used by one thread at a time. Different models may be used by different threads. Free
// the chats of a session before the session, and the sessions of a model before the model.
#pragma once

#include "berth-plan-io.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gguf_context;

// ---- models ----

// An open model: weights on devices, and a tokenizer.
struct berth_model;

// How to open a model. All members may be 0.
struct berth_model_params {
    const char *device;       // name of a device as `berth devices` prints it; NULL: all GPUs and the CPU
    int n_threads;            // CPU threads; 0: one per core
    bool no_mmap;             // read the file instead of mapping it, so that other programs may change it
    const char *const *loras; // [n_loras] adapters, each "FILE" or "FILE:SCALE"
    int64_t n_loras;          // number of adapters
    // Reports the bytes that are loaded. If it returns false, the model is not opened. NULL: not called.
    bool (*progress)(size_t done, size_t all, void *user_data);
    void *user_data; // argument of progress
};

// Opens a model file and places its weights on devices. path NULL: the small model that comes with Berth. params may be NULL.
// Returns NULL on failure.
BERTH_API struct berth_model *berth_model_open(const char *path, const struct berth_model_params *params);

// Frees a model. It must not have sessions any more.
BERTH_API void berth_model_free(struct berth_model *model);

// Facts about a model.
struct berth_model_info {
    const char *path;    // the file; belongs to the model
    const char *arch;    // name of the architecture; belongs to the model
    int64_t n_layer;     // layers
    int64_t n_embd;      // elements of an embedding
    int64_t n_vocab;     // tokens of the vocabulary
    int64_t n_ctx_train; // context of training
    int32_t bos;         // token that begins a text; -1: none
    int32_t eos;         // token that ends a text; -1: none
};

// Stores the facts about a model.
BERTH_API void berth_model_info(const struct berth_model *model, struct berth_model_info *info);

// Returns the keys of the model file, for the functions of gguf.h. They belong to the model.
BERTH_API const struct gguf_context *berth_model_keys(const struct berth_model *model);

// Ends long work on this model: during every later call, stop(user_data) is called often, also from other threads. If it returns
// true, the call returns GGML_STATUS_ABORTED soon. NULL ends this. berth_flag_is_set is such a function.
BERTH_API void berth_model_set_stop(struct berth_model *model, ggml_abort_callback stop, void *user_data);

// Returns whether the int that `flag` points to is not 0. Another thread or a signal handler may set it.
BERTH_API bool berth_flag_is_set(void *flag);

// ---- tokens ----

// How berth_model_tokenize converts a text. The values can be combined.
enum berth_tokenize_flag {
    BERTH_TOKENIZE_ADD = 1,   // add the tokens that begin and end a text
    BERTH_TOKENIZE_PARSE = 2, // recognise control tokens that are spelled out in the text
};

// Converts a text of size bytes to tokens and stores the first max_tokens of them; tokens may be NULL if max_tokens is 0. Returns
// the number of tokens of the complete text, or -1 on failure.
BERTH_API int64_t berth_model_tokenize(
    const struct berth_model *model, const char *text, size_t size, unsigned flags, int32_t *tokens, int64_t max_tokens);

// Stores the first max_size bytes of the text of n tokens; text may be NULL if max_size is 0. Control tokens have no text. The
// text has no NUL at its end, and may begin and end within a character. Returns the bytes of the complete text, or -1 on failure.
BERTH_API int64_t berth_model_detokenize(
    const struct berth_model *model, const int32_t *tokens, int64_t n, char *text, size_t max_size);

// Returns whether a token ends a text.
BERTH_API bool berth_model_is_end(const struct berth_model *model, int32_t token);

// ---- sessions ----

// A cache of processed tokens, and the memory to compute the next ones.
struct berth_session;

// How to create a session. All members may be 0.
struct berth_session_params {
    int64_t n_ctx;          // positions; 0: the context of training, limited to 512 ... 4096
    int64_t n_batch;        // largest number of tokens that are processed together; 0: min(512, n_ctx)
    const char *cache_type; // type of keys and values ("q8_0"), or of each ("q8_0,f16"); NULL: f16
    bool is_embedding;      // computes embeddings instead of logits
};

// Creates a session and allocates all its memory: later calls allocate none on devices. params may be NULL. Returns NULL on
// failure.
BERTH_API struct berth_session *berth_session_new(struct berth_model *model, const struct berth_session_params *params);

// Frees a session.
BERTH_API void berth_session_free(struct berth_session *session);

// The memory of a session on one device, in bytes.
struct berth_session_memory {
    const char *device; // name of the device
    uint64_t weights;   // weights of the model
    uint64_t cache;     // cache of the session
    uint64_t compute;   // compute buffer
    uint64_t bound;     // no compute buffer for the largest graph is smaller
    uint64_t work;      // work memory
};

// Stores the memory on device i and returns true. Returns false if the session has i devices or fewer.
BERTH_API bool berth_session_memory(const struct berth_session *session, int i, struct berth_session_memory *memory);

// Returns the number of positions of a session.
BERTH_API int64_t berth_session_n_ctx(const struct berth_session *session);

// Returns the number of positions in the cache.
BERTH_API int64_t berth_session_n_past(const struct berth_session *session);

// Removes all positions from the cache.
BERTH_API void berth_session_reset(struct berth_session *session);

// Processes n tokens at the next positions.
BERTH_API enum ggml_status berth_session_decode(struct berth_session *session, const int32_t *tokens, int64_t n);

// Returns the logits of the last processed token, n_vocab values; with is_embedding its embedding, n_embd values. They are valid
// until the next call on the session. Returns NULL if no token was processed.
BERTH_API const float *berth_session_logits(const struct berth_session *session);

// Computes the embedding of a text of size bytes: the outputs of the last norm, of the last token or averaged over all tokens.
// Stores n_embd values. Unless is_raw, they are scaled to length 1. Requires is_embedding. The cache is reset.
BERTH_API enum ggml_status berth_session_embed(
    struct berth_session *session, const char *text, size_t size, bool is_last, bool is_raw, float *embedding);

// ---- generating text ----

// Changes the logit of a token.
struct berth_token_bias {
    int32_t token; // the token
    float bias;    // added to its logit; -INFINITY: the token is never chosen
};

// How to generate text. berth_generate_params_init sets the defaults.
struct berth_generate_params {
    int64_t max_tokens;                    // most tokens; -1: until the model ends the text or the context is full
    int64_t seed;                          // of the random numbers; below 0: a new one for each call
    float temperature;                     // 0: always the most likely token; higher values are more random
    int64_t top_k;                         // keep the top_k most likely tokens; 0: all
    float typical;                         // then keep the most typical tokens with this total probability; 1: all
    float top_p;                           // then keep the most likely tokens with this total probability; 1: all
    float min_p;                           // then keep tokens at least min_p times as likely as the most likely one
    float repeat_penalty;                  // lower the logits of recent tokens by this factor; 1: off
    float frequency_penalty;               // subtract this from a logit for each occurrence among the recent tokens
    float presence_penalty;                // subtract this from a logit if the token is among the recent ones
    int64_t repeat_last_n;                 // number of recent tokens for the penalties
    float mirostat_tau;                    // target surprise of Mirostat 2 in bits; 0: off
    float mirostat_eta;                    // learning rate of Mirostat 2
    const struct berth_token_bias *biases; // [n_biases] changes of logits
    int64_t n_biases;                      // number of changes
    const char *const *stops;              // [n_stops] texts that end the generated text; they are not part of it
    int n_stops;                           // number of these texts
    const char *grammar;                   // generate only text that matches this GBNF grammar; NULL: any text
    const char *json_schema;               // generate only JSON that matches this schema; NULL: any text
    // Receives the text as it is generated: size bytes of complete characters. If it returns false, the call ends with
    // GGML_STATUS_ABORTED. NULL: not called.
    bool (*on_text)(const char *text, size_t size, void *user_data);
    void *user_data; // argument of on_text
};

// Sets the defaults, which are those of `berth run`.
BERTH_API void berth_generate_params_init(struct berth_generate_params *params);

// Why a text ended.
enum berth_end {
    BERTH_END_MODEL,   // the model ended it, or the grammar allows no further token
    BERTH_END_TOKENS,  // max_tokens were generated
    BERTH_END_CONTEXT, // the context is full
    BERTH_END_STOP,    // a text of stops was generated
    BERTH_END_ABORTED, // on_text or the stop function of the model ended it
};

// What a call has generated.
struct berth_generate_result {
    enum berth_end end;  // why the text ended
    int64_t n_prompt;    // tokens of the prompt that were processed
    int64_t n_generated; // generated tokens
    int64_t prompt_us;   // time for the prompt
    int64_t generate_us; // time for the generated tokens
    int64_t n_decoded;   // generated tokens that the model has processed in generate_us
    int64_t seed;        // of the random numbers
};

// Continues a prompt of size bytes. The cache is reset first. params and result may be NULL. The result is also stored if the call
// fails.
BERTH_API enum ggml_status berth_session_generate(struct berth_session *session, const char *prompt, size_t size,
    const struct berth_generate_params *params, struct berth_generate_result *result);

// ---- chats ----

// A conversation. Its processed messages stay in the cache of the session, so that an answer processes only new messages. Other
// calls on the session between two answers are allowed; the next answer then processes the conversation again.
struct berth_chat;

// Starts a conversation. template_name: chatml, llama3, gemma, ...; NULL: the template of the model file. Returns NULL on failure.
BERTH_API struct berth_chat *berth_chat_new(struct berth_session *session, const char *template_name);

// Frees a conversation.
BERTH_API void berth_chat_free(struct berth_chat *chat);

// Appends a message with the role "system", "user" or "assistant".
BERTH_API enum ggml_status berth_chat_add(struct berth_chat *chat, const char *role, const char *text, size_t size);

// Generates the answer to the last message, which must be the user's, and appends it to the conversation. If the context is too
// small, the oldest messages are dropped. If the call is aborted, the incomplete answer is appended. If it fails, the user's message
// is removed. params and result may be NULL.
BERTH_API enum ggml_status berth_chat_answer(
    struct berth_chat *chat, const struct berth_generate_params *params, struct berth_generate_result *result);

// Returns the number of messages.
BERTH_API int64_t berth_chat_n_messages(const struct berth_chat *chat);

// Stores the role and the text of message i, which belong to the conversation and are valid until it changes. Returns false if
// there is no message i.
BERTH_API bool berth_chat_message(const struct berth_chat *chat, int64_t i, const char **role, const char **text);

// ---- inputs of the planner, and pictures of plans ----

// How to read an input of the planner. All members may be 0.
struct berth_plan_input_params {
    int64_t n_ctx;          // of a model: as in berth_session_params
    int64_t n_batch;        // of a model: as in berth_session_params
    const char *cache_type; // of a model: as in berth_session_params
};

// Reads the items of any file that `berth plan` accepts: CSV, JSON, a captured graph, or a model, whose weights are not read.
// params may be NULL. The caller frees *set with berth_plan_set_free.
BERTH_API enum ggml_status berth_plan_input_read(
    const char *path, const struct berth_plan_input_params *params, struct berth_plan_set **set);

// A format of a picture.
enum berth_map_format {
    BERTH_MAP_SVG,  // a picture
    BERTH_MAP_HTML, // an interactive page
};

// Writes the memory map of a plan. offsets: one per item; NULL: those of the set. The pools of the set are sorted.
BERTH_API enum ggml_status berth_plan_map(
    struct berth_plan_set *set, const uint64_t *offsets, const char *title, enum berth_map_format format, FILE *file);

#ifdef __cplusplus
}
#endif
