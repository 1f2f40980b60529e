// SPDX-License-Identifier: MIT
// text.c: prints messages, progress and colours, and parses numbers and prints sizes.

#include "base/base.h"
#include "cli/cli.h"
#include "model/vocab.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// ---- progress: a line on a terminal that is overwritten by the next one ----

// The fraction is computed from counted work, not estimated from time. Nothing is shown in the first FIRST_US, or if standard
// error is not a terminal.

#define FIRST_US 200000  // microseconds before the first line
#define PERIOD_US 100000 // microseconds between two lines
#define BAR 16           // largest width of the bar; smaller if the text needs the space

static struct {
    int64_t start_us, next_us;
    bool is_shown;
    char what[32];
} line;

static int terminal_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void cli_progress(const char *what, uint64_t done, uint64_t all, const char *fmt, ...) {
    static const char full[BAR + 1] = "################";
    const int64_t now_us = ggml_time_us();
    if (strcmp(line.what, what) != 0) {
        cli_progress_end();
        snprintf(line.what, sizeof line.what, "%s", what);
        line.start_us = now_us;
        line.next_us = now_us + FIRST_US;
    }
    if (now_us < line.next_us || cli_is_quiet() || !isatty(STDERR_FILENO)) {
        return;
    }
    const double part = all == 0 || done > all ? 1 : (double) done / (double) all;
    char text[512], details[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(details, sizeof details, fmt, args);
    va_end(args);
    const int width = terminal_width() - 1, n_fixed = (int) strlen(what) + (int) strlen(" [] 100%  ") + (int) strlen(details);
    const int bar = n_fixed + BAR <= width ? BAR : width - n_fixed;
    if (bar > 0) {
        snprintf(text, sizeof text, "%s [%-*.*s] %3.0f%%  %s", what, bar, (int) (bar * part), full, 100 * part, details);
    } else {
        snprintf(text, sizeof text, "%s %3.0f%%  %s", what, 100 * part, details);
    }
    fprintf(stderr, "\r%.*s\033[K", width, text);
    fflush(stderr);
    line.is_shown = true;
    line.next_us = now_us + PERIOD_US;
}

void cli_progress_end(void) {
    if (line.is_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    line.is_shown = false;
    line.what[0] = '\0';
}

void cli_text(FILE *file, int width, const char *text) {
    int n = 0;
    uint32_t c;
    for (size_t size; *text != '\0'; text += size) {
        size = utf8_next(text, strnlen(text, 4), &c);
        const bool is_invalid = size == 1 && c == 0xFFFD; // not UTF-8: terminals may interpret such bytes as control characters
        const bool is_control = is_invalid || c < 0x20 || (c >= 0x7F && c <= 0x9F);
        n += is_control ? 1 : (int) size;
        if (is_control) {
            fputc('?', file);
        } else {
            fwrite(text, 1, size, file);
        }
    }
    fprintf(file, "%*s", n < width ? width - n : 0, "");
}

static void put_message(const char *fmt, va_list args) {
    char *text;
    if (vasprintf(&text, fmt, args) < 0) {
        fputs("out of memory for the message", stderr);
        return;
    }
    cli_text(stderr, 0, text);
    free(text);
}

int cli_fail(enum cli_exit code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    cli_progress_end();
    fprintf(stderr, "%sberth:%s ", cli_colour(stderr, CLI_RED), cli_colour(stderr, CLI_RESET));
    put_message(fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

static bool is_quiet;

void cli_quiet_set(void) {
    is_quiet = true;
}

bool cli_is_quiet(void) {
    return is_quiet;
}

void cli_warn(const char *fmt, ...) {
    va_list args;
    if (is_quiet) {
        return;
    }
    va_start(args, fmt);
    cli_progress_end();
    fprintf(stderr, "%sberth: warning:%s ", cli_colour(stderr, CLI_YELLOW), cli_colour(stderr, CLI_RESET));
    put_message(fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

int cli_usage(const char *command, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%sberth %s:%s ", cli_colour(stderr, CLI_RED), command, cli_colour(stderr, CLI_RESET));
    put_message(fmt, args);
    fprintf(stderr, "\nTry 'berth %s --help'.\n", command);
    va_end(args);
    return CLI_USAGE;
}

bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *out >= min && *out <= max;
}

bool cli_parse_ms(const char *text, int64_t *us) {
    char *end;
    const double ms = strtod(text, &end);
    const bool ok = end != text && *end == '\0' && ms >= 0 && ms <= 1e12;
    *us = ok ? (int64_t) (ms * 1000) : 0;
    return ok;
}

const char *cli_bytes(uint64_t size, char text[64]) {
    char digits[32], rounded[32];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, size);
    int at = 0;
    for (int i = 0; i < n; i++) {
        text[at++] = digits[i];
        if ((n - i - 1) % 3 == 0 && i + 1 < n) {
            text[at++] = ',';
        }
    }
    at += snprintf(text + at, (size_t) (64 - at), size == 1 ? " byte" : " bytes");
    if (size >= 1024) {
        snprintf(text + at, (size_t) (64 - at), " (%s)", cli_short_bytes(size, rounded));
    }
    return text;
}

const char *cli_short_bytes(uint64_t size, char text[32]) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double) size;
    int unit = 0;
    for (; x >= 1024 && unit < 6; unit++) {
        x /= 1024;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", x, names[unit]);
    return text;
}

const char *cli_colour(FILE *file, enum cli_colour colour) {
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
    const char *no = getenv("NO_COLOR");
    return isatty(fileno(file)) && (no == NULL || *no == '\0') ? codes[colour] : "";
}
