// SPDX-License-Identifier: MIT
// guard.c: files are mapped, and what another program cuts off a mapped file is no memory any more: touching it is a signal. The
// program then says which file it was and ends as after any other failure, with nothing half written. Only what a signal
// handler may call is called: no memory is asked for, and the file's name comes from the kernel's list of maps.

#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

// A line of /proc/self/maps, byte by byte: "start-end rights offset device inode      name".
struct map_line {
    uintptr_t start, end, x;
    int n_fields; // that have ended
    char name[512];
    size_t n_name;
};

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

// The line of the map that the address is in; false: none that has a file.
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
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    static const char before[] = "berth: ", after[] = ": was cut short by another program while it was read\n";
    (void) unused;
    while (atomic_flag_test_and_set(&is_told)) { // several threads meet the end of the file: one tells
        pause();
    }
    if (info->si_code == BUS_ADRERR && map_find((uintptr_t) info->si_addr, &line)) {
        cli_output_forget();
        (void) !write(STDERR_FILENO, before, sizeof before - 1);
        (void) !write(STDERR_FILENO, line.name, line.n_name);
        (void) !write(STDERR_FILENO, after, sizeof after - 1);
        _exit(CLI_FAILURE);
    }
    atomic_flag_clear(&is_told);
    signal(number, SIG_DFL); // something else: it comes again and ends the program
}

void cli_guard_init(void) {
    struct sigaction action = {0};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, NULL);
}
