// SPDX-License-Identifier: MIT
// file.c: opens files for reading, replaces files atomically, and provides streams into memory.

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- reading ----

// Every file with untrusted bytes is opened here. Only regular files are accepted, so opening never blocks.
// A pipe is refused before it is opened, because closing a pipe would send SIGPIPE to its writer.

static const char *stat_refusal(int rc, const struct stat *st) { // NULL: a regular file
    if (rc != 0) {
        return strerror(errno);
    }
    return S_ISREG(st->st_mode) ? NULL : "not a regular file";
}

int berth_file_open_fd(const char *path, uint64_t *size, const char **why) {
    struct stat st;
    *why = stat_refusal(stat(path, &st), &st);
    if (*why != NULL) {
        return -1;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // a pipe may have replaced the file since the stat
    if (fd < 0) {
        *why = strerror(errno);
        return -1;
    }
    *why = stat_refusal(fstat(fd, &st), &st);
    if (*why != NULL) {
        close(fd);
        return -1;
    }
    *size = (uint64_t) st.st_size;
    return fd;
}

FILE *berth_file_open(const char *path, uint64_t *size, const char **why) {
    const int fd = berth_file_open_fd(path, size, why);
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && file == NULL) {
        *why = strerror(errno);
        close(fd);
    }
    return file;
}

bool berth_file_starts_with(const char *path, const char *magic) {
    char found[16];
    const size_t n = strlen(magic);
    uint64_t size;
    const char *why;
    FILE *file = berth_file_open(path, &size, &why); // reading from a pipe would remove bytes
    if (file == NULL) {
        return false;
    }
    const bool is_equal = n <= sizeof found && fread(found, 1, n, file) == n && memcmp(found, magic, n) == 0;
    fclose(file);
    return is_equal;
}

// ---- writing ----

// Every file that Berth writes is opened here. A failure or the end of the process leaves the old file unchanged:
//
//     open "x.PID.N.part" -> write -> fsync -> close -> rename to "x" -> fsync the folder
//
// If the old file has several hard links, only this name gets the new content.
// Devices, pipes, files of other owners, and files in unwritable folders are written in place.

// Gives the open file the owner and mode of the old file. If this function returns false, the open file cannot replace the old
// file.
static bool try_take_owner_and_mode(int fd, const struct stat *old) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == old->st_dev && fchown(fd, old->st_uid, old->st_gid) == 0 &&
           fchmod(fd, old->st_mode & 0777) == 0;
}

// Creates the temporary file and stores its name in part. The file has the mode of the old file from the start, so users who may
// not read the old file cannot read the new one.
static int part_open(const char *target, mode_t mode, char *part, size_t size) {
    int fd = -1;
    errno = EEXIST;
    // The name may exist, because a killed process leaves its file, and process ids are reused.
    for (int i = 0; fd < 0 && errno == EEXIST && i < 1000; i++) {
        snprintf(part, size, "%s.%ld.%d.part", target, (long) getpid(), i);
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    return fd;
}

static bool must_write_in_place(int why) {
    return why == EACCES || why == EPERM || why == EROFS || why == ENAMETOOLONG;
}

// Whether the path is a device or another name of an open file, such as /dev/stdout or /proc/self/fd/3.
static bool is_system_path(const char *path) {
    return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

// Clears the pointers before it frees the memory, because a signal handler may read them at any time.
static void names_free(struct berth_replace *r) {
    char *target = r->target, *part = r->part;
    r->target = r->part = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    berth_free(target);
    berth_free(part);
}

static bool names_make(struct berth_replace *r, const char *path, bool exists) {
    char real[PATH_MAX];
    if (exists && realpath(path, real) == NULL) {
        return false;
    }
    const size_t size = strlen(exists ? real : path) + 1;
    r->target = berth_malloc(size);
    r->part = berth_malloc(size + 48);
    if (r->target == NULL || r->part == NULL) {
        names_free(r);
        errno = ENOMEM;
        return false;
    }
    memcpy(r->target, exists ? real : path, size);
    return true;
}

// old: status of the file to replace, or NULL. On failure returns false with errno.
// errno 0: the temporary file cannot replace the old file.
static bool part_make(struct berth_replace *r, const char *path, const struct stat *old) {
    if (!names_make(r, path, old != NULL)) {
        return false;
    }
    const int fd = part_open(r->target, old != NULL ? old->st_mode & 0777 : 0666, r->part, strlen(r->target) + 48);
    int why = fd >= 0 ? 0 : errno;
    if (fd >= 0 && (old == NULL || try_take_owner_and_mode(fd, old))) {
        r->file = fdopen(fd, "wb");
        why = r->file == NULL ? errno : 0;
    }
    if (r->file == NULL) {
        if (fd >= 0) {
            close(fd);
            unlink(r->part);
        }
        names_free(r);
        errno = why;
    }
    return r->file != NULL;
}

// On failure returns false with errno. errno 0: the file must be written in place.
static bool part_open_for(struct berth_replace *r, const char *path) {
    struct stat old;
    const bool exists = stat(path, &old) == 0;
    if (*path == '\0' || is_system_path(path) ||
        (exists ? !S_ISREG(old.st_mode) || access(path, W_OK) != 0 : lstat(path, &old) == 0)) {
        errno = 0;
        return false;
    }
    if (part_make(r, path, exists ? &old : NULL)) {
        return true;
    }
    if (must_write_in_place(errno)) {
        errno = 0;
    }
    return false;
}

bool berth_replace_open_new(struct berth_replace *r, const char *path) {
    *r = (struct berth_replace){0};
    return part_make(r, path, NULL);
}

bool berth_replace_open(struct berth_replace *r, const char *path) {
    *r = (struct berth_replace){0};
    if (!part_open_for(r, path) && errno == 0) {
        r->file = fopen(path, "wbe");
    }
    return r->file != NULL;
}

// Some file systems and special files do not support fsync.
static bool sync_ok(int fd) {
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EROFS;
}

// Syncs the folder, because the folder stores the new name of the file. A folder may be writable but not readable, so a failed
// open is not an error.
static bool folder_sync(const char *target) {
    char folder[PATH_MAX];
    const char *slash = strrchr(target, '/');
    const size_t n = slash != NULL ? (size_t) (slash - target) + 1 : 0;
    if (n >= sizeof folder) {
        return true;
    }
    memcpy(folder, target, n);
    folder[n] = '\0';
    const int fd = open(n > 0 ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return true;
    }
    const bool ok = sync_ok(fd);
    const int why = errno;
    close(fd);
    errno = why;
    return ok;
}

bool berth_replace_close(struct berth_replace *r, bool ok) {
    int why = ok ? 0 : errno;
    errno = 0;
    if (fflush(r->file) != 0 || ferror(r->file) || (ok && !sync_ok(fileno(r->file)))) {
        if (ok) {
            why = errno;
        }
        ok = false;
    }
    if (fclose(r->file) != 0 && ok) {
        why = errno;
        ok = false;
    }
    if (r->part != NULL && ok && rename(r->part, r->target) != 0) {
        why = errno;
        ok = false;
    }
    if (r->part != NULL && !ok) {
        unlink(r->part);
    }
    if (r->part != NULL && ok && !folder_sync(r->target)) {
        why = errno;
        ok = false;
    }
    names_free(r);
    r->file = NULL;
    errno = why;
    return ok;
}

// ---- streams into memory ----

// libc's open_memstream does not report when memory runs out. This stream stores the failure.

static ssize_t stream_write(void *cookie, const char *bytes, size_t size) {
    struct berth_stream *s = cookie;
    if (s->has_failed || size >= SIZE_MAX - s->size || !BERTH_GROW(&s->text, &s->cap, s->size + size + 1)) {
        s->has_failed = true;
        errno = ENOMEM;
        return 0;
    }
    memcpy(s->text + s->size, bytes, size);
    s->size += size;
    return (ssize_t) size;
}

bool berth_stream_open(struct berth_stream *s) {
    *s = (struct berth_stream){0};
    s->file = fopencookie(s, "w", (cookie_io_functions_t){.write = stream_write});
    return s->file != NULL;
}

bool berth_stream_close(struct berth_stream *s) {
    const bool is_written = s->file != NULL && fflush(s->file) == 0 && !ferror(s->file);
    const bool is_closed = s->file != NULL && fclose(s->file) == 0;
    s->file = NULL;
    if (!is_written || !is_closed || s->has_failed || !BERTH_GROW(&s->text, &s->cap, s->size + 1)) {
        berth_stream_fini(s);
        errno = ENOMEM;
        return false;
    }
    s->text[s->size] = '\0';
    return true;
}

void berth_stream_fini(struct berth_stream *s) {
    if (s->file != NULL) {
        fclose(s->file);
    }
    berth_free(s->text);
    *s = (struct berth_stream){0};
}
