// SPDX-License-Identifier: MIT
// models.h: functions that the commands on models share.
#pragma once

#include "base/json.h"
#include "cli/cli.h"
#include "model/workbench.h"

// Parsers for the rows of help.h. The target is the struct model_options.
struct cli_option;
int cli_model_cache_type(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_model_gpu_layers(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_model_split(const struct cli_option *option, const char *command, const char *value, void *target);
// plans.c: --memory parses into a struct fit_limits, --allow into an unsigned.
int cli_fit_memory(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_fit_allow(const struct cli_option *option, const char *command, const char *value, void *target);

// These functions call model/workbench.h, print messages and progress, and return an exit code.
int cli_model_path(const struct model_options *options, char path[4096]);
int cli_model_open(struct workbench *m, const struct model_options *options);
int cli_model_open_text(struct workbench *m, const struct model_options *options); // with its vocabulary
int cli_model_lora(struct workbench *m, const char *text);
int cli_model_session(struct workbench *m, const struct model_options *options);
// Warns if the context n_ctx is longer than the context of training, n_ctx_train.
void cli_context_warn(int64_t n_ctx, int64_t n_ctx_train);

// Prints for each device: "CPU: weights 6.3 MiB, cache 1.0 MiB, compute 1.2 MiB (bound 1.2 MiB, gap 0.00%), work 1.0 MiB".
void cli_model_memory(FILE *file, const struct workbench *m);
void cli_model_memory_json(struct berth_json_writer *w, const char *key, const struct workbench *m); // a list

// ---- gguf.c ----

// NULL: failed, and a message was printed. *code is CLI_FAILURE if the file cannot be read, CLI_NEGATIVE if it is not a valid GGUF
// file.
struct berth_gguf_map *cli_gguf_open(const char *path, bool with_progress, int *code);
// On failure prints a message and returns CLI_FAILURE.
int cli_gguf_write(const char *path, const struct gguf_context *header, model_bytes_t bytes, void *user);

// ---- cluster.c: these functions print a message or the result and return the exit code ----

// fit --cluster: predicts memory and speed on the cluster that the file describes.
int cli_cluster_fit(const struct model_options *options, const char *file, bool json);
// bench --cluster: measures the devices of all ranks. path: a model whose types are measured; NULL: all types.
int cli_cluster_bench(const char *path, int64_t n_threads, const char *out);
// --split auto: sets by_tensor if a split by tensors is faster on the devices of all ranks.
int cli_cluster_choose(struct model_options *options);

// serve.c: prints the plan of a server that uses at most `memory` bytes (0: no limit), as text or JSON. has_speed: and its speed.
int cli_serve_plan(const struct model_options *model, uint64_t memory, int n_parallel, bool json, bool has_speed);

// ---- Ctrl-C ----

// Shows the progress bar and reports Ctrl-C.
extern const struct work_watch cli_watch;

// The first Ctrl-C sets a flag. The second Ctrl-C ends the program.
void cli_catch_interrupt(void);
// wake true: Ctrl-C interrupts a waiting read (EINTR). wake false: reads and writes continue.
void cli_interrupt_wake_reads(bool wake);
bool cli_is_interrupted(void *unused);
// Clears the flag of Ctrl-C.
void cli_interrupt_clear(void);
