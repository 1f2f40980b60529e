// SPDX-License-Identifier: MIT
// cli.h: functions that the commands of the program `berth` share.
#pragma once

#include "base/base.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,        // success
    CLI_NEGATIVE = 1,  // negative result: does not fit, is not valid, differs
    CLI_USAGE = 2,     // wrong command line
    CLI_FAILURE = 3,   // failure outside the program: a file, memory, a full disk
    CLI_UNKNOWN = 4,   // no result within the time limit
    CLI_STOPPED = 130, // Ctrl-C, in every command (main.c); the results so far are printed
};

// ---- text.c ----

// Prints "berth: ..." to standard error. Control characters become '?'. Returns the code.
int cli_fail(enum cli_exit code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Like cli_fail, but adds a hint to the command's --help and returns CLI_USAGE.
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// --quiet: standard error gets errors only.
void cli_quiet_set(void);
bool cli_is_quiet(void);
// Prints "berth: warning: ..." to standard error.
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);
// Parses milliseconds, which may have a fraction, as microseconds.
bool cli_parse_ms(const char *text, int64_t *us);
// Writes a text, padded to `width`. Control characters become '?', because files are untrusted.
void cli_text(FILE *file, int width, const char *text);
// "1,048,576 bytes (1.00 MiB)"
const char *cli_bytes(uint64_t size, char text[64]);
// "6.25 MiB"
const char *cli_short_bytes(uint64_t size, char text[32]);

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_YELLOW, CLI_RED, CLI_RESET = CLI_PLAIN };
// "": the stream is not a terminal, or NO_COLOR is set.
const char *cli_colour(FILE *file, enum cli_colour colour);

// Shows a progress bar with `done` of `all` and a text, if standard error is a terminal. May be called at any rate. A different
// `what` starts a new bar.
void cli_progress(const char *what, uint64_t done, uint64_t all, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// Clears the bar. Call before anything else is printed.
void cli_progress_end(void);

// ---- input.c ----

// Reads a whole file, "-" for standard input, and appends a NUL. The caller frees the text. NULL: failed, and a message was
// printed.
char *cli_read_text(const char *path, size_t *size);
// Returns whether standard input is a pipe or a non-empty file.
bool cli_has_stdin(void);

// How a command uses a file that an argument names. Output files are compared with these files, so that no output replaces an
// input.
enum cli_use {
    CLI_NOT_READ,
    CLI_READ,   // no output may be this file
    CLI_UPDATE, // only cli_open_update may write to this file: a prompt cache, a checkpoint
};
// Registers a file that the command reads, by device and inode. A folder stands for its files, a part of a model for all parts,
// "FILE:SCALE" for the file. Missing files and files that are not regular are ignored.
void cli_input_add(const char *path, enum cli_use use);
// Returns why an output with this use must not replace the file; NULL: it may.
const char *cli_input_refuses(const char *path, enum cli_use use);

// ---- output.c ----

// Call at the start of main. Replaces each closed standard stream by a stream on which every access fails. Otherwise a file that
// is opened later would get the descriptor number of the closed stream, and messages would be written to the file.
void cli_streams_init(void);
// Returns whether path is "-" or names the file or pipe of standard output, such as /dev/stdout.
bool cli_is_stdout(const char *path);
// Call before long work. CLI_OK: `path` is NULL, or it can be written and the command does not read it. Otherwise prints a
// message and returns the exit code. Changes no file.
int cli_output_check(const char *path);
// Like cli_output_check, for a file that cli_open_update will open.
int cli_update_check(const char *path);
// Opens a file for writing, "-" for standard output. A regular file keeps its old content until cli_close. NULL: failed, or the
// command reads the file; a message was printed.
FILE *cli_open(const char *path);
// Like cli_open, for a file that may be registered as CLI_UPDATE.
FILE *cli_open_update(const char *path);
// Closes the file and detects write errors, such as a full disk. ok false: the writer failed. After a failure, the old file is
// unchanged.
int cli_close(FILE *file, const char *path, bool ok);
// Like cli_close. If ok is false, `why` is the writer's error message.
int cli_close_why(FILE *file, const char *path, bool ok, const char *why);
// Closes the file and discards its content, without a message.
void cli_drop(FILE *file);
// A signal handler: removes unfinished files, then ends the process by the signal.
void cli_output_stop(int number);
// Removes unfinished files. Safe in a signal handler.
void cli_output_forget(void);

// ---- guard.c ----

// From now on, truncating a mapped file causes a failure with a message instead of SIGBUS.
void cli_guard_init(void);

// ---- the end of main (output.c) ----

// Call at the end of main. Returns `code`, or reports a failure to write standard output.
int cli_finish(int code);
