// SPDX-License-Identifier: MIT
// posix.c: the machine, signals, the console and patterns (unistd.h, sched.h, signal.h, sys/, fnmatch.h).

#define _CRT_RAND_S // declares rand_s, which takes its numbers from the system

#include "base/windows/posix.h"

#include <windows.h> // before the headers of this folder

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <io.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <shellapi.h> // requires the header above

// ---- the machine ----

long posix_sysconf(int name) {
    SYSTEM_INFO system;
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    GetNativeSystemInfo(&system);
    switch (name) {
        case _SC_PAGESIZE: return (long) system.dwPageSize;
        case _SC_NPROCESSORS_ONLN: return (long) system.dwNumberOfProcessors;
        case _SC_PHYS_PAGES: return GlobalMemoryStatusEx(&memory) ? (long) (memory.ullTotalPhys / system.dwPageSize) : -1;
        case _SC_AVPHYS_PAGES: return GlobalMemoryStatusEx(&memory) ? (long) (memory.ullAvailPhys / system.dwPageSize) : -1;
        default: errno = EINVAL; return -1;
    }
}

int posix_uname(struct utsname *name) {
    *name = (struct utsname){.sysname = "Windows", .release = "", .machine = "x86_64"};
    return 0;
}

int posix_gethostname(char *name, int size) {
    DWORD n = (DWORD) size;
    return GetComputerNameA(name, &n) ? 0 : -1;
}

int posix_getaffinity(int pid, size_t size, cpu_set_t *set) {
    DWORD_PTR process, system;
    (void) pid, (void) size;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &process, &system) || process == 0) {
        errno = ENOSYS;
        return -1;
    }
    set->bits = process;
    return 0;
}

int posix_thread_affinity(const cpu_set_t *set, cpu_set_t *old_set) {
    cpu_set_t old;
    if (posix_getaffinity(0, sizeof old, &old) != 0) {
        return ENOSYS;
    }
    // A thread's affinity can only be read by setting it.
    const DWORD_PTR before = SetThreadAffinityMask(GetCurrentThread(), set != NULL ? set->bits & old.bits : old.bits);
    if (before == 0) {
        return EINVAL;
    }
    if (set == NULL) {
        SetThreadAffinityMask(GetCurrentThread(), before);
    }
    if (old_set != NULL) {
        old_set->bits = before;
    }
    return 0;
}

int posix_getcpu(void) {
    return (int) GetCurrentProcessorNumber();
}

ssize_t posix_getrandom(void *out, size_t size, unsigned flags) {
    char *to = out;
    (void) flags;
    for (size_t i = 0; i < size; i++) {
        unsigned x;
        if (rand_s(&x) != 0) {
            return -1;
        }
        to[i] = (char) x;
    }
    return (ssize_t) size;
}

void posix_wait_on(const void *word, unsigned value) {
    WaitOnAddress((volatile void *) (uintptr_t) word, &value, sizeof value, INFINITE);
}

void posix_wake_all(void *word) {
    WakeByAddressAll(word);
}

// ---- the program ----

void posix_arguments_get(int *argc, char ***argv) {
    int n;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **args = wide != NULL ? calloc((size_t) n + 1, sizeof *args) : NULL;
    bool ok = args != NULL;
    for (int i = 0; ok && i < n; i++) {
        args[i] = posix_utf8(wide[i]);
        ok = args[i] != NULL;
    }
    LocalFree(wide);
    if (ok) { // otherwise the arguments stay in the code page of the system; the new ones are never freed
        *argc = n;
        *argv = args;
    }
}

void posix_console_init(void) {
    for (int fd = 0; fd <= 2; fd++) {
        _setmode(fd, _O_BINARY);
    }
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
}

// ---- the console ----

int posix_console_size(int fd, int command, struct winsize *size) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    (void) command;
    if (!GetConsoleScreenBufferInfo((HANDLE) _get_osfhandle(fd), &info)) {
        errno = ENOTTY;
        return -1;
    }
    size->ws_col = (unsigned short) (info.srWindow.Right - info.srWindow.Left + 1);
    size->ws_row = (unsigned short) (info.srWindow.Bottom - info.srWindow.Top + 1);
    return 0;
}

// ---- signals ----

static void (*handlers[NSIG])(int);

// The C library resets a handler before it calls it.
static void handler_call(int number) {
    signal(number, handler_call);
    handlers[number](number);
}

int posix_sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    if (number != SIGINT && number != SIGTERM && number != SIGABRT) {
        errno = EINVAL;
        return -1;
    }
    if (old != NULL) {
        *old = (struct sigaction){.sa_handler = handlers[number] != NULL ? handlers[number] : SIG_DFL};
    }
    if (action == NULL) {
        return 0;
    }
    const bool is_own = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
    handlers[number] = action->sa_handler;
    const bool is_set = signal(number, is_own ? handler_call : action->sa_handler) != SIG_ERR;
    return is_set ? 0 : -1;
}

// ---- patterns ----

// Matches the class after '['. Returns the rest of the pattern, or NULL if the class has no end.
static const char *class_match(const char *pattern, char c, bool *matches) {
    const bool is_negated = *pattern == '!' || *pattern == '^';
    bool found = false;
    if (is_negated) {
        pattern++;
    }
    for (bool is_first = true; *pattern != ']' || is_first; is_first = false) {
        if (*pattern == '\0') {
            return NULL;
        }
        const char from = *pattern++;
        char to = from;
        if (pattern[0] == '-' && pattern[1] != ']' && pattern[1] != '\0') {
            to = pattern[1];
            pattern += 2;
        }
        found = found || (from <= c && c <= to);
    }
    *matches = found != is_negated;
    return pattern + 1;
}

int posix_fnmatch(const char *pattern, const char *text, int flags) {
    const char *star = NULL, *star_text = NULL; // where to continue if the rest does not match
    (void) flags;
    while (*text != '\0' || *pattern != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            star_text = text;
            continue;
        }
        const char *next = *pattern != '\0' ? pattern + 1 : pattern;
        bool matches = *pattern != '\0' && *text != '\0';
        if (matches && *pattern == '[') {
            const char *end = class_match(pattern + 1, *text, &matches);
            if (end != NULL) {
                next = end;
            } else {
                matches = *text == '[';
            }
        } else if (matches && *pattern == '\\' && pattern[1] != '\0') {
            matches = pattern[1] == *text;
            next = pattern + 2;
        } else if (matches && *pattern != '?') {
            matches = *pattern == *text;
        }
        if (matches) {
            pattern = next;
            text++;
        } else if (star != NULL && *star_text != '\0') {
            pattern = star;
            text = ++star_text;
        } else {
            return FNM_NOMATCH;
        }
    }
    return 0;
}
