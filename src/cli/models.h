// SPDX-License-Identifier: MIT
// models.h: what the commands over models share: finding, opening and placing one, what it takes in memory.
#pragma once

#include "cli/cli.h"
#include "model/model.h"

// Options of every command that opens a model; zeroed is the default.
struct cli_model_options {
    const char *path;   // NULL: the shipped model
    const char *device; // NULL: all
    int64_t n_threads;
    int64_t n_ctx, n_batch;
    enum ggml_type cache_k, cache_v; // of the cache's keys and values, if they are given
    bool has_cache_type;
    bool plan_only;
    bool no_mmap;                                                   // the file is read
    bool by_tensor;                                                 // a share of every layer to each device
    bool by_best;                                                   // by_tensor or not, as cluster_choose finds
    bool by_llama;                                                  // by libllama, whatever the architecture
    bool is_quiet;                                                  // without warnings
    bool may_llama;                                                 // by libllama, where Berth does not know it
    bool all_outputs, is_embedding;                                 // as in session_params
    size_t compute;                                                 // as in session_params
    int64_t n_host;                                                 // layers, from the first, that stay on the host
    bool (*rooms)(struct model_devices *devices, const void *user); // sets what layers may fill; NULL: what is free
    const void *rooms_user;
};

// --model 'm', --ctx 'c', --batch 'b', --threads 't', --device 'd', CLI_CACHE_TYPE, CLI_GPU_LAYERS, CLI_NO_MMAP, CLI_SPLIT,
// CLI_LLAMA: true if c is one of them, with *code set: CLI_OK, or that of a wrong value.
bool cli_model_option(const char *command, int c, const char *value, struct cli_model_options *options, int *code);

// What is left on the command line after its options: the model's file, or nothing, or it was given by --model. -1 to go on, else
// the exit code.
int cli_model_file(const char *command, int argc, char **argv, struct cli_model_options *options);

// A model with its devices and a session over it.
struct cli_model {
    struct model *model;
    struct model_devices devices;
    struct session *session; // NULL until cli_model_session
    char path[4096];
};

// The model's file: the one given, if it can be read, or the shipped one; after a message if there is none.
int cli_model_path(const struct cli_model_options *options, char path[4096]);
// The model of a file, by Berth or by libllama as the options say.
struct model *cli_model_choose(const char *path, const struct cli_model_options *options, struct model_error *error);
// Opens and places; after a message if it fails.
int cli_model_open(struct cli_model *m, const struct cli_model_options *options);
// "FILE" or "FILE:SCALE": an adapter on top of it, before there is a session.
int cli_model_lora(struct cli_model *m, const char *text);
// The same cut in two; CLI_FAILURE after a message.
int cli_lora_parse(const char *text, char path[4096], float *scale);
// Tells of a context that is longer than the model was trained for.
void cli_model_warn(const struct model *model, const struct cli_model_options *options);
// What a session is asked for by these options.
struct session_params cli_model_params(const struct cli_model_options *options);
// The cache and memory for the largest graphs.
int cli_model_session(struct cli_model *m, const struct cli_model_options *options);
void cli_model_close(struct cli_model *m);

// ", CPU: weights 6.3 MiB, cache 1.0 MiB, compute 1.2 MiB (bound 1.2 MiB, gap 0.00%)" for each device that has something.
void cli_model_memory(FILE *file, const struct cli_model *m);
void cli_model_memory_json(FILE *file, const struct cli_model *m); // a list

// Ctrl-C: the first one sets a flag, a second one ends the program as usual.
void cli_catch_interrupt(void);
bool cli_is_interrupted(void *unused);
// As if there had been none: the next one is the first again.
void cli_interrupt_clear(void);
