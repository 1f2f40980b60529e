// SPDX-License-Identifier: MIT
// train.h: what the parts of `berth train` share.
#pragma once

#include "cli/models.h"
#include "train/train.h"

struct cli_train {
    struct model_options model;
    const char *data, *val, *out, *resume, *plot, *config;
    enum train_split split;
    int64_t n_epochs, save_every; // -1: not given
    struct train_params params;   // -1: not given, for whole numbers and rates alike
    int64_t seed, optimizer, schedule;
    bool json;
    const struct berth_mpi_world *world; // NULL: no other ranks
};

// train.c: rank 0 alone prints and writes files; its exit code is that of all. Every rank calls cli_train_first.
bool cli_train_is_first(const struct cli_train *o);
int cli_train_first(const struct cli_train *o, int code);

// train_text.c: the texts of a file or a folder; CLI_OK, or the exit code after a message. Warns of what is not text.
int cli_train_read(const struct cli_train *o, const char *path, const struct vocab *vocab, struct train_data *data);

// train_run.c: the name of the checkpoint, OUT.checkpoint.
const char *cli_train_checkpoint(const struct cli_train *o, char path[4096]);
// All steps, with what is seen of them and what they leave behind.
int cli_train_run(const struct cli_train *o, struct trainer *t, struct train_data *data, const struct train_data *val);

// train_plot.c: the losses of all steps, and those on other texts, as a picture.
bool cli_train_plot(const struct trainer *t, FILE *file);
