// SPDX-License-Identifier: MIT
// models.h: what the commands over models share: finding, opening and placing one, what it takes in memory.
#pragma once

#include "base/json.h"
#include "cli/cli.h"
#include "model/workbench.h"

// Options of models that are neither text nor number, for help.h's rows: the target is the struct model_options.
struct cli_option;
int cli_model_cache_type(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_model_gpu_layers(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_model_split(const struct cli_option *option, const char *command, const char *value, void *target);
// plans.c: --memory, one limit or several with commas between, into a struct fit_limits, and --allow into an unsigned.
int cli_fit_memory(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_fit_allow(const struct cli_option *option, const char *command, const char *value, void *target);

// The calls of model/workbench.h with a message and an exit code, a progress bar and warnings.
int cli_model_path(const struct model_options *options, char path[4096]);
int cli_model_open(struct workbench *m, const struct model_options *options);
int cli_model_open_text(struct workbench *m, const struct model_options *options); // with its vocabulary
int cli_model_lora(struct workbench *m, const char *text);
int cli_model_session(struct workbench *m, const struct model_options *options);
// Warns of a context that is longer than the model was trained for.
void cli_context_warn(int64_t n_ctx, int64_t n_ctx_train);

// ", CPU: weights 6.3 MiB, cache 1.0 MiB, compute 1.2 MiB (bound 1.2 MiB, gap 0.00%)" for each device that has something.
void cli_model_memory(FILE *file, const struct workbench *m);
void cli_model_memory_json(struct berth_json_writer *w, const char *key, const struct workbench *m); // a list

// ---- gguf.c ----

// Maps a file; NULL after a message. *code is CLI_FAILURE if it cannot be read, CLI_NO if it is not a sound GGUF file.
struct berth_gguf_map *cli_gguf_open(const char *path, bool with_progress, int *code);
// Writes a file by model_write: CLI_OK, or CLI_FAILURE after a message.
int cli_gguf_write(const char *path, const struct gguf_context *header, model_bytes_t bytes, void *user);

// ---- cluster.c: the exit code, after a message or what was asked for ----

// fit --cluster: a model over the cluster of a file.
int cli_cluster_fit(const struct model_options *options, const char *file, bool json);
// bench --cluster: measures the devices of this machine and of other ranks; path: a model whose types matter, NULL: all types.
int cli_cluster_bench(const char *path, int64_t n_threads, const char *out);
// --split auto: sets by_tensor to what is faster on the devices here and of other ranks.
int cli_cluster_choose(struct model_options *options);

// train_plot.c: the losses of all steps, and those on other texts, as a picture.
struct trainer;
bool cli_train_plot(const struct trainer *t, FILE *file);

// ---- Ctrl-C ----

// The progress bar and Ctrl-C for the modules' long work.
extern const struct work_watch cli_watch;

// Ctrl-C: the first one sets a flag, a second one ends the program as usual.
void cli_catch_interrupt(void);
// true: a read that waits for input returns EINTR at Ctrl-C. Otherwise reads and writes continue after the signal.
void cli_interrupt_wake_reads(bool wake);
bool cli_is_interrupted(void *unused);
// As if there had been none: the next one is the first again.
void cli_interrupt_clear(void);
