// SPDX-License-Identifier: MIT
// guard.c: handles SIGBUS, which an access to a truncated mapped file raises. The handler prints the file's name, removes partly
// written files and ends the program. It calls async-signal-safe functions only, so it allocates nothing and reads the name from
// /proc/self/maps.

#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

// A line of /proc/self/maps, parsed byte by byte: "start-end rights offset device inode      name".
struct map_line {
    uintptr_t start, end;
    uintptr_t x;  // the number that is being parsed
    int n_fields; // complete fields
    char name[512];
    size_t n_name;
};

// Parses the next byte of a line.
static void line_add(struct map_line *line, char c) {
    static const char digits[] = "0123456789abcdef";
    const char *digit = c != '\0' ? strchr(digits, c) : NULL;
    if (line->n_fields == 0 && c == '-') {
        line->start = line->x;
        line->x = 0;
    } else if (line->n_fields == 0 && digit != NULL) {
        line->x = line->x * 16 + (uintptr_t) (digit - digits);
    } else if (line->n_fields < 5 && c == ' ') {
        if (line->n_fields == 0) {
            line->end = line->x;
        }
        line->n_fields++;
    } else if (line->n_fields == 5 && (c != ' ' || line->n_name > 0) && line->n_name + 1 < sizeof line->name) {
        line->name[line->n_name++] = (char) ((unsigned char) c < 0x20 || (unsigned char) c >= 0x7f ? '?' : c);
    }
}

// Finds the mapped file that contains the address `at`. False: there is none.
static bool map_find(uintptr_t at, struct map_line *line) {
    char text[512];
    bool is_found = false;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    memset(line, 0, sizeof *line);
    for (ssize_t n = 0; !is_found && fd >= 0 && (n = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; !is_found && i < n; i++) {
            if (text[i] != '\n') {
                line_add(line, text[i]);
            } else if (line->start <= at && at < line->end) {
                is_found = true;
            } else {
                memset(line, 0, sizeof *line);
            }
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_found && line->name[0] == '/';
}

static void on_bus_error(int number, siginfo_t *info, void *unused) {
    static struct map_line line;
    static atomic_flag is_reporting = ATOMIC_FLAG_INIT;
    static const char before[] = "berth: ", after[] = ": another program truncated the file while it was read\n";
    (void) unused;
    while (atomic_flag_test_and_set(&is_reporting)) { // several threads may hit the end of the file; one reports it
        pause();
    }
    if (info->si_code == BUS_ADRERR && map_find((uintptr_t) info->si_addr, &line)) {
        cli_output_forget(); // removes partly written files
        (void) !write(STDERR_FILENO, before, sizeof before - 1);
        (void) !write(STDERR_FILENO, line.name, line.n_name);
        (void) !write(STDERR_FILENO, after, sizeof after - 1);
        _exit(CLI_FAILURE);
    }
    atomic_flag_clear(&is_reporting);
    signal(
        number, SIG_DFL); // the cause is not a truncated file: after the handler, the signal is raised again and ends the program
}

void cli_guard_init(void) {
    struct sigaction action = {0};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, NULL);
}
