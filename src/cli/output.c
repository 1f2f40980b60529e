// SPDX-License-Identifier: MIT
// output.c: opens and closes output files. An output appears under its name only when it is complete (base/file.c). A signal
// handler removes the unfinished files in `outputs`.

#include "base/base.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct output {
    struct berth_replace to;
    struct output *_Atomic next;
};
static struct output *_Atomic outputs; // consistent at any time, for the signal handler
// While is_opening is set, the handler only stores the signal. Otherwise a signal between creating a file and listing it in
// `outputs` would end the program without removing the unfinished file.
static atomic_bool is_opening;
static atomic_int pending_signal; // the pending signal, 0: none

void cli_streams_init(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) { // open uses the lowest free number, which is fd
            (void) !open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        }
    }
}

bool cli_is_stdout(const char *path) {
    struct stat s, t;
    return strcmp(path, "-") == 0 || (fstat(STDOUT_FILENO, &s) == 0 && !S_ISCHR(s.st_mode) && stat(path, &t) == 0 &&
                                         s.st_dev == t.st_dev && s.st_ino == t.st_ino);
}

// Checks the folder in advance. Returns the errno with which creating the file would fail; 0: no such error is known.
static int folder_refuses(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? strdup(path) : NULL;
    if (folder != NULL) {
        folder[slash - path + 1] = '\0';
    }
    const bool ok = (folder != NULL || slash == NULL) && access(folder != NULL ? folder : ".", W_OK | X_OK) == 0;
    const int why = ok ? 0 : errno;
    free(folder);
    return why;
}

static int output_refuses(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            return EISDIR;
        }
        return access(path, W_OK) != 0 ? errno : 0;
    }
    if (errno != ENOENT || *path == '\0') {
        return errno;
    }
    return lstat(path, &st) == 0 ? 0 : folder_refuses(path); // a dangling link is not checked further
}

static int fail_to_open(const char *path, int why) {
    return cli_fail(CLI_FAILURE, "%s: cannot be written: %s", path, strerror(why));
}

static int output_check_inputs(const char *path, enum cli_use use) {
    const char *why = strcmp(path, "-") != 0 ? cli_input_refuses(path, use) : NULL;
    return why != NULL ? cli_fail(CLI_FAILURE, "%s: %s", path, why) : CLI_OK;
}

static int output_check(const char *path, enum cli_use use) {
    if (path == NULL || strcmp(path, "-") == 0) {
        return CLI_OK;
    }
    if (output_check_inputs(path, use) != CLI_OK) {
        return CLI_FAILURE;
    }
    const int why = output_refuses(path);
    return why != 0 ? fail_to_open(path, why) : CLI_OK;
}

int cli_output_check(const char *path) {
    return output_check(path, CLI_READ);
}

int cli_update_check(const char *path) {
    return output_check(path, CLI_UPDATE);
}

void cli_output_forget(void) {
    for (const struct output *o = outputs; o != NULL; o = o->next) {
        if (o->to.part != NULL) {
            unlink(o->to.part);
        }
    }
}

void cli_output_stop(int number) {
    if (is_opening) {
        pending_signal = number;
        return;
    }
    cli_output_forget();
    signal(number, SIG_DFL);
    raise(number);
}

// Signals that remove unfinished files. They include signals that writing itself may raise: a closed pipe, a file size limit.
static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGXCPU, SIGXFSZ};

static void signals_catch(void) {
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction action = {0};
        // A signal that is ignored or that a command handles stays as it is.
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
            action.sa_handler = cli_output_stop;
            sigaction(signals[i], &action, NULL);
        }
    }
}

// Returns whether the output is first written to a temporary file. A pipe is opened directly, which blocks until it has a reader.
static bool needs_part_file(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode);
}

// Opens the file and adds it to `outputs`. A signal is handled before or after both steps, not in between.
static bool output_list(struct output *o, const char *path) {
    signals_catch();
    is_opening = needs_part_file(path);
    const bool ok = berth_replace_open(&o->to, path);
    const int why = errno;
    if (ok) {
        o->next = outputs;
        outputs = o;
    }
    is_opening = false;
    if (pending_signal != 0) {
        cli_output_stop(pending_signal);
    }
    errno = why;
    return ok;
}

static FILE *output_open(const char *path, enum cli_use use) {
    if (output_check_inputs(path, use) != CLI_OK) {
        return NULL;
    }
    if (cli_is_stdout(path)) {
        return stdout;
    }
    struct output *o = berth_calloc(1, sizeof *o);
    if (o == NULL || !output_list(o, path)) {
        fail_to_open(path, o == NULL ? ENOMEM : errno);
        berth_free(o);
        return NULL;
    }
    return o->to.file;
}

FILE *cli_open(const char *path) {
    return output_open(path, CLI_READ);
}

FILE *cli_open_update(const char *path) {
    return output_open(path, CLI_UPDATE);
}

// Returns the output that has this file, or NULL if the file is standard output.
static struct output *output_find(const FILE *file) {
    struct output *o = outputs;
    while (o != NULL && o->to.file != file) {
        o = o->next;
    }
    return o;
}

static void output_unlist(struct output *o) {
    struct output *_Atomic *at = &outputs;
    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
}

static bool output_close(FILE *file, bool ok) {
    struct output *o = output_find(file);
    if (o == NULL) {
        if (ok) {
            errno = 0;
        }
        return fflush(file) == 0 && !ferror(file) && ok;
    }
    ok = berth_replace_close(&o->to, ok);
    output_unlist(o);
    berth_free(o);
    return ok;
}

int cli_close(FILE *file, const char *path, bool ok) {
    if (output_close(file, ok)) {
        return CLI_OK;
    }
    return cli_fail(CLI_FAILURE, "%s: writing failed: %s", path, errno == 0 ? "unknown error" : strerror(errno));
}

int cli_close_why(FILE *file, const char *path, bool ok, const char *why) {
    if (ok) {
        return cli_close(file, path, true);
    }
    cli_drop(file);
    return cli_fail(CLI_FAILURE, "%s: %s", path, why);
}

void cli_drop(FILE *file) {
    (void) output_close(file, false);
}

int cli_finish(int code) {
    const int why = fflush(stdout) != 0 ? errno : 0; // errno of an earlier failure is lost
    if (why != 0 || ferror(stdout)) {
        return cli_fail(CLI_FAILURE, "standard output: writing failed%s%s", why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    }
    return code;
}
