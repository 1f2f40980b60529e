// SPDX-License-Identifier: MIT
// train_run.c: the steps of `berth train`: how far they are, checkpoints, an end by Ctrl-C, and what is said at the end. What is
// written appears when it is whole (output.c), so that the last checkpoint survives whatever happens to the next.

#include "base/json.h"
#include "cli/cli.h"
#include "cli/train.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define QUIET_US 10000000 // between two lines of a log

struct run {
    const struct cli_train *o;
    struct trainer *t;
    struct train_data *data;
    const struct train_data *val; // NULL: none
    char checkpoint[4096];
    int64_t n_saved;            // steps in the checkpoint; -1: there is none
    int64_t first;              // steps that were done before
    size_t first_look;          // losses on other texts that were found before, maybe on another text
    int64_t start_us, spent_us; // of all, of looking at other texts
    int64_t told_us;            // when a line was last written to what is no terminal
};

// ---- files ----

const char *cli_train_checkpoint(const struct cli_train *o, char path[4096]) {
    snprintf(path, 4096, "%s.checkpoint", o->out);
    return path;
}

static int checkpoint_save(struct run *r) {
    struct model_error error = {""};
    FILE *file = cli_open_update(r->checkpoint);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    const int code = cli_close_why(file, r->checkpoint, train_state_write(r->t, r->data, file, &error), error.text);
    if (code == CLI_OK) {
        r->n_saved = r->t->n_done;
    }
    return code;
}

static int result_save(struct run *r) {
    struct model_error error = {""};
    FILE *file = r->o->out != NULL ? cli_open(r->o->out) : NULL;
    if (file == NULL) {
        return r->o->out != NULL ? CLI_FAILURE : CLI_OK;
    }
    return cli_close_why(file, r->o->out, train_save(r->t, file, &error), error.text);
}

static int plot_save(struct run *r) {
    FILE *file = r->o->plot != NULL ? cli_open(r->o->plot) : NULL;
    if (file == NULL) {
        return r->o->plot != NULL ? CLI_FAILURE : CLI_OK;
    }
    return cli_close(file, r->o->plot, cli_train_plot(r->t, file));
}

// Rank 0 does it, for all of them.
static int by_first(struct run *r, int (*save)(struct run *r)) {
    return cli_train_first(r->o, cli_train_is_first(r->o) ? save(r) : CLI_OK);
}

// ---- what is seen ----

static int64_t tokens_of(const struct run *r) {
    return (r->t->n_done - r->first) * r->t->params.n_seq * r->t->params.n_ctx;
}

static double speed_of(const struct run *r) {
    const int64_t us = ggml_time_us() - r->start_us - r->spent_us;
    return us > 0 ? 1e6 * (double) tokens_of(r) / (double) us : 0;
}

static const char *duration_text(double seconds, char text[32]) {
    const int64_t s = (int64_t) seconds;
    if (s >= 3600) {
        snprintf(text, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int) (s / 60 % 60), (int) (s % 60));
    } else {
        snprintf(text, 32, "%d:%02d", (int) (s / 60), (int) (s % 60));
    }
    return text;
}

// A line where no bar can be: for logs, now and then, and none for short work.
static bool is_due(struct run *r) {
    const int64_t now_us = ggml_time_us();
    if (cli_is_quiet() || isatty(STDERR_FILENO) || now_us < r->told_us + QUIET_US) {
        return false;
    }
    r->told_us = now_us;
    return true;
}

static void step_print(struct run *r) {
    const struct trainer *t = r->t;
    if (!cli_train_is_first(r->o)) {
        return;
    }
    const int64_t n_all = t->params.n_steps;
    const double speed = speed_of(r), left = (double) ((n_all - t->n_done) * t->params.n_seq * t->params.n_ctx);
    const double loss = (double) t->losses[t->n_done - 1];
    char time[32];
    duration_text(speed > 0 ? left / speed : 0, time);
    cli_progress("training", (uint64_t) t->n_done, (uint64_t) n_all,
        "%s left, loss %.4f, step %" PRId64 " of %" PRId64 ", %.0f tokens/s", time, loss, t->n_done, n_all, speed);
    if (is_due(r)) {
        fprintf(stderr, "step %" PRId64 " of %" PRId64 ": loss %.4f, %.0f tokens a second, %s left\n", t->n_done, n_all, loss,
            speed, time);
    }
}

static bool has_look_at(const struct trainer *t, int64_t step) {
    return t->n_looks > 0 && t->looks[t->n_looks - 1].step == step;
}

// The loss on the other texts, unless this run has it of this step.
static int loss_look(struct run *r) {
    struct trainer *t = r->t;
    struct model_error error = {""};
    if (r->val == NULL || (t->n_looks > r->first_look && has_look_at(t, t->n_done))) {
        return CLI_OK;
    }
    const int64_t start = ggml_time_us();
    const bool ok = trainer_look(t, r->val, cli_is_interrupted, &error);
    r->spent_us += ggml_time_us() - start;
    if (!ok) {
        return t->is_stopped ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cli_progress_end();
    if (!cli_train_is_first(r->o) || cli_is_quiet() || (!isatty(STDERR_FILENO) && !is_due(r))) {
        return CLI_OK;
    }
    fprintf(stderr, "step %" PRId64 ": loss on %s %.4f\n", t->n_done, r->o->val, (double) t->looks[t->n_looks - 1].loss);
    return CLI_OK;
}

static int64_t parameters_of(const struct trainer *t) {
    int64_t n = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        n += ggml_nelements(t->tensors[i].w);
    }
    return n;
}

static void print_json(const struct run *r, double seconds, double speed) {
    const struct trainer *t = r->t;
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w,
        "'out': %s, 'steps': %" PRId64 ", 'done': %" PRId64 ", 'stopped': %c, 'parameters': %" PRId64 ", 'tokens': %" PRId64
        ", 'seconds': %.3f, 'per_second': %.3f, 'bytes_trained': %zu, 'bytes_compute': %zu, 'again': %zu, 'slower': %.4f",
        r->o->out != NULL ? r->o->out : "", t->params.n_steps, t->n_done, t->is_stopped, parameters_of(t), tokens_of(r), seconds,
        speed, t->size, t->compute, t->n_again, t->slower);
    berth_json_begin(&w, "losses", '[');
    for (int64_t i = 0; i < t->n_done; i++) {
        berth_json_printf(&w, "%.9g", (double) t->losses[i]);
    }
    berth_json_end(&w);
    berth_json_begin(&w, "val", '[');
    for (size_t i = 0; i < t->n_looks; i++) {
        berth_json_printf(&w, "{'step': %" PRId64 ", 'loss': %.9g}", t->looks[i].step, (double) t->looks[i].loss);
    }
    puts("]}");
}

static void print_text(const struct run *r, double seconds, double speed) {
    const struct trainer *t = r->t;
    char text[2][32], time[32];
    if (r->o->out != NULL) {
        cli_text(stdout, 0, r->o->out);
        printf(": ");
    }
    printf("%" PRId64 " of %" PRId64 " steps, %" PRId64 " parameters", t->n_done, t->params.n_steps, parameters_of(t));
    if (t->n_done > 0) {
        printf(", loss %.4f to %.4f", (double) t->losses[0], (double) t->losses[t->n_done - 1]);
    }
    if (t->n_looks > r->first_look) {
        printf(", on %s %.4f to %.4f", r->o->val, (double) t->looks[r->first_look].loss, (double) t->looks[t->n_looks - 1].loss);
    }
    printf("; %" PRId64 " tokens in %s, %.0f a second; trained %s, compute %s", tokens_of(r), duration_text(seconds, time), speed,
        cli_short_bytes(t->size, text[0]), cli_short_bytes(t->compute, text[1]));
    if (t->n_again > 0) {
        printf(", %zu ops of a step run again: %.2f times the cost", t->n_again, t->slower);
    }
    fputs("\n", stdout);
}

// ---- the steps ----

// t->is_stopped: whether to go on no further.
static int stop_ask(struct run *r) {
    struct model_error error = {""};
    return train_ranks_stop(r->t, cli_is_interrupted(NULL), &error) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

static int steps_run(struct run *r) {
    struct trainer *t = r->t;
    int code = loss_look(r);
    while (t->n_done < t->params.n_steps) {
        struct model_error error = {""};
        if (code != CLI_OK || (code = stop_ask(r)) != CLI_OK || t->is_stopped) {
            break;
        }
        if (!trainer_step(t, r->data, &error)) {
            code = cli_fail(CLI_FAILURE, "%s", error.text);
            if (r->n_saved >= 0) {
                fprintf(stderr, "The last checkpoint is that of step %" PRId64 ": %s\n", r->n_saved, r->checkpoint);
            }
            return code;
        }
        step_print(r);
        if (r->o->save_every > 0 && t->n_done % r->o->save_every == 0 && t->n_done < t->params.n_steps) {
            cli_progress_end();
            code = loss_look(r);
            if (code == CLI_OK) {
                code = by_first(r, checkpoint_save);
            }
        }
    }
    cli_progress_end();
    return code == CLI_OK ? loss_look(r) : code;
}

int cli_train_run(const struct cli_train *o, struct trainer *t, struct train_data *data, const struct train_data *val) {
    struct run r = {.o = o, .t = t, .data = data, .val = val, .n_saved = -1, .first = t->n_done, .start_us = ggml_time_us()};
    r.told_us = r.start_us;
    r.first_look = t->n_looks;
    if (val != NULL && has_look_at(t, t->n_done)) { // it is found again: nobody knows of which text it was
        r.first_look = --t->n_looks;
    }
    if (o->out != NULL) {
        cli_train_checkpoint(o, r.checkpoint);
    }
    int code = steps_run(&r);
    const double seconds = 1e-6 * (double) (ggml_time_us() - r.start_us), speed = speed_of(&r);
    if (code != CLI_OK || (code = stop_ask(&r)) != CLI_OK) {
        return code;
    }
    const bool has_to_save = o->out != NULL && (o->save_every > 0 || t->is_stopped);
    if ((has_to_save && (code = by_first(&r, checkpoint_save)) != CLI_OK) || (code = by_first(&r, result_save)) != CLI_OK ||
        (code = by_first(&r, plot_save)) != CLI_OK) {
        return code;
    }
    const bool is_short = t->is_stopped && t->n_done < t->params.n_steps;
    if (!cli_train_is_first(o)) {
        return is_short ? CLI_STOPPED : CLI_OK;
    }
    if (o->json) {
        print_json(&r, seconds, speed);
    } else {
        print_text(&r, seconds, speed);
    }
    if (is_short) {
        if (has_to_save && !cli_is_quiet()) {
            fprintf(stderr, "stopped; --resume %s goes on from step %" PRId64 "\n", r.checkpoint, t->n_done);
        }
        return CLI_STOPPED;
    }
    return CLI_OK;
}
