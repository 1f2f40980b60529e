// SPDX-License-Identifier: MIT
// memory_left.c: the memory limit of the process, from the machine (/proc/meminfo) and from its control groups.
//
// A control group is a folder with a limit and counts of used memory. Limits of the folders above hold too, so all are read. In a
// container, /proc/self/cgroup may name a folder that is not visible. The visible root is then the folder of the container.

#include "base/memory_left.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT_SIZE 8192

// Reads a small file into text, with a NUL at the end. Returns false if there is no file or it is empty.
static bool text_read(const char *path, char *text) {
    size_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : 0;
    while (got > 0 && n < TEXT_SIZE - 1) { // one read may return only a part of a file in /proc
        got = read(fd, text + n, TEXT_SIZE - 1 - n);
        if (got > 0) {
            n += (size_t) got;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    text[n] = '\0';
    return n > 0;
}

static bool number_parse(const char *text, uint64_t *out) {
    char *end;
    *out = strtoull(text, &end, 10);
    return end != text;
}

static bool number_read(const char *folder, const char *name, char *text, uint64_t *out) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t) n < sizeof path && text_read(path, text) && number_parse(text, out);
}

// Returns the number in the line "key number" or "key: number"; 0: there is no such line.
static uint64_t line_number(const char *text, const char *key) {
    const size_t n = strlen(key);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        uint64_t number;
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':') && number_parse(line + n + 1, &number)) {
            return number;
        }
    }
    return 0;
}

// The names of a version of control groups.
struct group_names {
    const char *limit, *used, *inactive, *active;
};

static const struct group_names names_v1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
static const struct group_names names_v2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

static void group_read(const char *folder, const struct group_names *names, struct berth_memory_left *out) {
    char text[TEXT_SIZE], path[PATH_MAX];
    uint64_t limit, used;
    if (!number_read(folder, names->limit, text, &limit) || limit >= out->limit ||
        !number_read(folder, names->used, text, &used)) {
        return;
    }
    const int n = snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t files = 0;
    if (n > 0 && (size_t) n < sizeof path && text_read(path, text)) {
        files = line_number(text, names->inactive) + line_number(text, names->active);
    }
    const uint64_t fixed = used > files ? used - files : 0;
    const uint64_t left = limit > fixed ? limit - fixed : 0;
    if (left < out->left) {
        out->limit = limit;
        out->left = left;
        snprintf(out->source, sizeof out->source, "%.*s", (int) sizeof out->source - 1, folder);
    }
}

// Reads the group and all groups above, up to the mount point.
static void groups_read(const char *mount, const char *group, const struct group_names *names, struct berth_memory_left *out) {
    char folder[PATH_MAX];
    const int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    const size_t n_mount = strlen(mount);
    if (n < 0 || (size_t) n >= sizeof folder) {
        return;
    }
    for (char *slash = folder + n; slash != NULL && slash >= folder + n_mount; slash = strrchr(folder, '/')) {
        *slash = '\0';
        group_read(folder, names, out);
    }
}

// A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:GROUP". Version 2 has number 0 and no controllers.
static void group_line_read(const char *root, char *line, struct berth_memory_left *out) {
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group++ = '\0';
    const bool is_v2 = strcmp(line, "0:") == 0;
    if (!is_v2 && strcmp(controllers, ":memory") != 0) {
        return;
    }
    const int n = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory");
    if (n > 0 && (size_t) n < sizeof mount) {
        groups_read(mount, group, is_v2 ? &names_v2 : &names_v1, out);
    }
}

bool berth_memory_left_read(const char *root, struct berth_memory_left *out) {
    char text[TEXT_SIZE], path[PATH_MAX];
    *out = (struct berth_memory_left){.limit = UINT64_MAX, .left = UINT64_MAX, .source = "the machine"};
    int n = snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (n > 0 && (size_t) n < sizeof path && text_read(path, text) && line_number(text, "MemTotal") > 0) {
        out->limit = line_number(text, "MemTotal") * 1024;
        out->left = line_number(text, "MemAvailable") * 1024;
    }
    n = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (n > 0 && (size_t) n < sizeof path && text_read(path, text)) {
        char *rest = text;
        for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
            group_line_read(root, line, out);
        }
    }
    n = snprintf(path, sizeof path, "%s/proc/self/status", root);
    if (n > 0 && (size_t) n < sizeof path && text_read(path, text)) {
        const uint64_t allocated = line_number(text, "VmData"), written = line_number(text, "RssAnon");
        out->unused = allocated > written ? (allocated - written) * 1024 : 0;
    }
    return out->left != UINT64_MAX;
}
