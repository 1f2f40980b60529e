// SPDX-License-Identifier: MIT
// progress.c: how far long work is, as one line on a terminal that the next one overwrites. What is shown is counted, not
// guessed; nothing is shown where standard error is no terminal, nor in the first moment, so that short work leaves no trace.

#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_US 200000  // before anything is shown
#define PERIOD_US 100000 // between two lines
#define BAR 16           // at most; as much less as the text is too long for the terminal

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
    char text[512], more[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(more, sizeof more, fmt, args);
    va_end(args);
    const int width = terminal_width() - 1, n_fixed = (int) strlen(what) + (int) strlen(" [] 100%  ") + (int) strlen(more);
    const int bar = n_fixed + BAR <= width ? BAR : width - n_fixed;
    if (bar > 0) {
        snprintf(text, sizeof text, "%s [%-*.*s] %3.0f%%  %s", what, bar, (int) (bar * part), full, 100 * part, more);
    } else {
        snprintf(text, sizeof text, "%s %3.0f%%  %s", what, 100 * part, more);
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
