// SPDX-License-Identifier: MIT
// cli.h: what the commands of the program `berth` share: exit codes, messages, sizes with units, colour, output files.
#pragma once

#include "base/base.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,        // fine
    CLI_NO = 1,        // the answer is no
    CLI_USAGE = 2,     // the command line is wrong
    CLI_FAILURE = 3,   // the world is: a file, memory, a full disk
    CLI_UNSURE = 4,    // no answer was found in the time given
    CLI_STOPPED = 130, // Ctrl-C, in every command (main.c); what was found until then is printed
};

// ---- text.c ----

// "berth: ..." on standard error, names in it as cli_text writes them; returns the code.
int cli_fail(enum cli_exit code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The same for a wrong option of a command, with a hint to its --help.
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// --quiet: standard error has errors only: no warnings, no progress, no lines on how it went. cli_is_quiet says whether.
void cli_quiet_set(void);
bool cli_is_quiet(void);
// "berth: warning: ..." on standard error.
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// A whole number of bytes: 4096, 64K, 1.5GiB. K, M, G, T and Ki, Mi, Gi, Ti are powers of 1024, with or without B; kB, MB, GB and
// TB are powers of 1000; parts of a byte are dropped. False if it is none or passes 2^62.
bool cli_parse_size(const char *text, uint64_t *size);
bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);
// Milliseconds, if wanted with a fraction, as microseconds.
bool cli_parse_ms(const char *text, int64_t *us);
// A text of a file, at least `width` wide: files come from anywhere, so what would command the terminal becomes '?'.
void cli_text(FILE *file, int width, const char *text);
// "1,048,576 bytes (1.00 MiB)"
const char *cli_bytes(uint64_t size, char text[64]);
// "6.25 MiB"
const char *cli_short_bytes(uint64_t size, char text[32]);

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_YELLOW, CLI_RED, CLI_RESET = CLI_PLAIN };
// The escape sequence, or "" if the stream is no terminal, or NO_COLOR is set.
const char *cli_colour(FILE *file, enum cli_colour colour);

// How far long work is: a bar with `done` of `all` and a text, on standard error if that is a terminal; call it as often as you
// like. Another `what` begins another bar.
void cli_progress(const char *what, uint64_t done, uint64_t all, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// The line is free again. Before anything else is printed.
void cli_progress_end(void);

// ---- input.c ----

// All of a file, "-" for standard input, with a NUL behind it, to be freed; NULL after a message.
char *cli_read_text(const char *path, size_t *size);
// Is something sent to standard input: a pipe, or a file that is not empty?
bool cli_has_stdin(void);

// What a command does with a file that it is given, so that no output takes the place of an input.
enum cli_use {
    CLI_NOT_READ,
    CLI_READ,   // no output may be this file
    CLI_UPDATE, // no output may be this file but the one that is opened by cli_open_update: a prompt cache, a checkpoint
};
// Remembers a file that the command reads, by device and inode; of a folder its files, of a model in several files all of them,
// of an adapter "FILE:SCALE" the file. What is not there or is not a regular file does not count.
void cli_input_add(const char *path, enum cli_use use);
// Why an output of this use must not be this file; NULL: it may be.
const char *cli_input_refuses(const char *path, enum cli_use use);

// ---- output.c ----

// At the start of main: what is closed of the three streams becomes one that fails, so that no file takes its place.
void cli_streams_init(void);
// "-", or another name of the file or pipe that standard output goes to, as /dev/stdout is?
bool cli_is_stdout(const char *path);
// Before long work: CLI_OK unless `path`, which may be NULL, is a file that the command reads or cannot be written; then after a
// message. Nothing is changed.
int cli_output_check(const char *path);
// The same for a file that cli_open_update opens.
int cli_update_check(const char *path);
// Opens a file to write, "-" for standard output; NULL after a message, also for a file that the command reads. What is there
// stays until cli_close has all of the new one, if that can take its place.
FILE *cli_open(const char *path);
// The same for a file that may have been read as CLI_UPDATE.
FILE *cli_open_update(const char *path);
// Flushes, closes and finds what went wrong on the way (a full disk); then what was there before is. `ok` is what the writers
// said.
int cli_close(FILE *file, const char *path, bool ok);
// The same; where the writer failed, `why` is what it said.
int cli_close_why(FILE *file, const char *path, bool ok, const char *why);
// Closes what is not wanted any more, without a word.
void cli_drop(FILE *file);
// A signal's handler: leaves no part of a file behind, then ends as the signal does.
void cli_output_stop(int number);
// What signal handlers may do about files that are being written: nothing stays of them.
void cli_output_forget(void);

// ---- guard.c ----

// From now on a file that is cut short while it is mapped is a failure with a message, not the end by a signal.
void cli_guard_init(void);
// Standard output is complete? For the end of main.
int cli_finish(int code);
