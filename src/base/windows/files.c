// SPDX-License-Identifier: MIT
// files.c: paths in UTF-8, files, folders, and streams that a function receives (posix.h, dirent.h, stdio.h).

#include "base/windows/posix.h"

#include <windows.h> // before the headers of this folder

#include <direct.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

// ---- texts ----

wchar_t *posix_wide(const char *text) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = n > 0 ? malloc((size_t) n * sizeof *wide) : NULL;
    if (wide == NULL) {
        errno = n > 0 ? ENOMEM : ENOENT;
        return NULL;
    }
    MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, n);
    return wide;
}

char *posix_utf8(const wchar_t *text) {
    const int n = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *utf8 = n > 0 ? malloc((size_t) n) : NULL;
    if (utf8 == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8, n, NULL, NULL);
    return utf8;
}

static void slashes_turn(char *path) {
    for (; *path != '\0'; path++) {
        if (*path == '\\') {
            *path = '/';
        }
    }
}

static int error_of_system(void) {
    switch (GetLastError()) {
        case ERROR_FILE_NOT_FOUND:
        case ERROR_PATH_NOT_FOUND:
        case ERROR_INVALID_NAME:
        case ERROR_BAD_PATHNAME: return ENOENT;
        case ERROR_ACCESS_DENIED:
        case ERROR_SHARING_VIOLATION:
        case ERROR_LOCK_VIOLATION:
        case ERROR_USER_MAPPED_FILE: return EACCES;
        case ERROR_FILE_EXISTS:
        case ERROR_ALREADY_EXISTS: return EEXIST;
        case ERROR_NOT_ENOUGH_MEMORY:
        case ERROR_COMMITMENT_LIMIT:
        case ERROR_OUTOFMEMORY: return ENOMEM;
        case ERROR_DISK_FULL: return ENOSPC;
        case ERROR_NOT_SAME_DEVICE: return EXDEV;
        case ERROR_DIR_NOT_EMPTY: return ENOTEMPTY;
        case ERROR_DIRECTORY: return ENOTDIR;
        case ERROR_WRITE_PROTECT: return EROFS;
        default: return EIO;
    }
}

static int fail_as_system(void) {
    errno = error_of_system();
    return -1;
}

// ---- files ----

// Other programs may rename or remove the file while it is open, as on POSIX. _wopen does not allow this.
int posix_open(const char *path, int flags, ...) {
    if ((flags & O_DIRECTORY) != 0) {
        errno = ENOTSUP;
        return -1;
    }
    int mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, int);
        va_end(args);
    }
    if (strcmp(path, "/dev/null") == 0) {
        path = "NUL";
    }
    wchar_t *wide = posix_wide(path);
    if (wide == NULL) {
        return -1;
    }
    const int way = flags & (O_RDONLY | O_WRONLY | O_RDWR);
    DWORD access = GENERIC_READ;
    if (way != O_RDONLY) {
        access = way == O_WRONLY ? GENERIC_WRITE : GENERIC_READ | GENERIC_WRITE;
    }
    DWORD how = OPEN_EXISTING;
    if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
        how = CREATE_NEW;
    } else if ((flags & O_CREAT) != 0) {
        how = (flags & O_TRUNC) != 0 ? CREATE_ALWAYS : OPEN_ALWAYS;
    } else if ((flags & O_TRUNC) != 0) {
        how = TRUNCATE_EXISTING;
    }
    DWORD kind = FILE_ATTRIBUTE_NORMAL;
    if ((flags & O_CREAT) != 0 && (mode & 0200) == 0) {
        kind = FILE_ATTRIBUTE_READONLY;
    }
    const HANDLE file = CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, how, kind, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE) {
        return fail_as_system();
    }
    const int fd = _open_osfhandle((intptr_t) file, way | (flags & O_APPEND) | _O_BINARY | _O_NOINHERIT);
    if (fd < 0) {
        CloseHandle(file);
    }
    return fd;
}

// mode: r, w, a, + and x as in fopen. 'b' and 'e' are implied.
FILE *posix_fopen(const char *path, const char *mode) {
    int flags = O_RDONLY;
    if (mode[0] == 'w') {
        flags = O_WRONLY | O_CREAT | O_TRUNC;
    } else if (mode[0] == 'a') {
        flags = O_WRONLY | O_CREAT | O_APPEND;
    }
    if (strchr(mode, '+') != NULL) {
        flags = (flags & ~(O_RDONLY | O_WRONLY)) | O_RDWR;
    }
    if (strchr(mode, 'x') != NULL) {
        flags |= O_EXCL;
    }
    const char plain[] = {mode[0], 'b', strchr(mode, '+') != NULL ? '+' : '\0', '\0'};
    const int fd = posix_open(path, flags, 0666);
    FILE *file = fd >= 0 ? _fdopen(fd, plain) : NULL;
    if (fd >= 0 && file == NULL) {
        close(fd);
    }
    return file;
}

#define SECONDS_1601_TO_1970 11644473600ll

static int handle_stat(HANDLE file, struct stat *st) {
    BY_HANDLE_FILE_INFORMATION info;
    *st = (struct stat){.st_nlink = 1};
    switch (GetFileType(file)) {
        case FILE_TYPE_CHAR: st->st_mode = S_IFCHR | 0666; return 0;
        case FILE_TYPE_PIPE: st->st_mode = S_IFIFO | 0666; return 0;
        case FILE_TYPE_DISK: break;
        default: errno = EBADF; return -1;
    }
    if (!GetFileInformationByHandle(file, &info)) {
        return fail_as_system();
    }
    const uint64_t written = (uint64_t) info.ftLastWriteTime.dwHighDateTime << 32 | info.ftLastWriteTime.dwLowDateTime;
    st->st_dev = info.dwVolumeSerialNumber;
    st->st_ino = (uint64_t) info.nFileIndexHigh << 32 | info.nFileIndexLow;
    st->st_mode = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? S_IFDIR | 0777 : S_IFREG | 0666;
    if ((info.dwFileAttributes & FILE_ATTRIBUTE_READONLY) != 0) {
        st->st_mode &= ~0222u;
    }
    st->st_nlink = info.nNumberOfLinks;
    st->st_size = (int64_t) ((uint64_t) info.nFileSizeHigh << 32 | info.nFileSizeLow);
    st->st_mtime = (time_t) (written / 10000000) - SECONDS_1601_TO_1970;
    return 0;
}

int posix_stat(const char *path, struct stat *st) {
    wchar_t *wide = posix_wide(strcmp(path, "/dev/null") == 0 ? "NUL" : path);
    if (wide == NULL) {
        return -1;
    }
    const HANDLE file = CreateFileW(wide, FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
        OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL); // the flag is required for folders
    free(wide);
    if (file == INVALID_HANDLE_VALUE) {
        return fail_as_system();
    }
    const int rc = handle_stat(file, st);
    CloseHandle(file);
    return rc;
}

int posix_fstat(int fd, struct stat *st) {
    return handle_stat((HANDLE) _get_osfhandle(fd), st);
}

int posix_access(const char *path, int mode) {
    wchar_t *wide = posix_wide(path);
    const int rc = wide != NULL ? _waccess(wide, mode) : -1;
    free(wide);
    return rc;
}

int posix_unlink(const char *path) {
    wchar_t *wide = posix_wide(path);
    if (wide == NULL) {
        return -1;
    }
    const bool ok = DeleteFileW(wide);
    free(wide);
    return ok ? 0 : fail_as_system();
}

int posix_rename(const char *from, const char *to) {
    wchar_t *wide_from = posix_wide(from), *wide_to = posix_wide(to);
    int rc = -1;
    if (wide_from != NULL && wide_to != NULL) {
        rc = MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) ? 0 : fail_as_system();
    }
    free(wide_from);
    free(wide_to);
    return rc;
}

int posix_mkdir(const char *path, mode_t mode) {
    (void) mode;
    wchar_t *wide = posix_wide(path);
    const int rc = wide != NULL ? _wmkdir(wide) : -1;
    free(wide);
    return rc;
}

int posix_rmdir(const char *path) {
    wchar_t *wide = posix_wide(path);
    const int rc = wide != NULL ? _wrmdir(wide) : -1;
    free(wide);
    return rc;
}

int posix_chdir(const char *path) {
    wchar_t *wide = posix_wide(path);
    const int rc = wide != NULL ? _wchdir(wide) : -1;
    free(wide);
    return rc;
}

char *posix_realpath(const char *path, char *resolved) {
    struct stat st;
    wchar_t *wide = posix_stat(path, &st) == 0 ? posix_wide(path) : NULL;
    wchar_t *full = wide != NULL ? _wfullpath(NULL, wide, 0) : NULL;
    char *utf8 = full != NULL ? posix_utf8(full) : NULL;
    free(wide);
    free(full);
    if (utf8 == NULL) {
        return NULL;
    }
    slashes_turn(utf8);
    if (resolved == NULL) {
        return utf8;
    }
    const size_t size = strlen(utf8) + 1;
    if (size <= PATH_MAX) {
        memcpy(resolved, utf8, size);
    }
    free(utf8);
    if (size > PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return resolved;
}

ssize_t posix_readlink(const char *path, char *out, size_t size) {
    wchar_t wide[PATH_MAX];
    if (strcmp(path, "/proc/self/exe") != 0) {
        errno = EINVAL;
        return -1;
    }
    const DWORD n = GetModuleFileNameW(NULL, wide, PATH_MAX);
    char *utf8 = n > 0 && n < PATH_MAX ? posix_utf8(wide) : NULL;
    const size_t len = utf8 != NULL ? strlen(utf8) : 0;
    if (len == 0 || len > size) {
        free(utf8);
        errno = ENAMETOOLONG;
        return -1;
    }
    slashes_turn(utf8);
    memcpy(out, utf8, len);
    free(utf8);
    return (ssize_t) len;
}

// Replaces the six letters X at the end of the path until `make` succeeds or fails with another errno than EEXIST.
static int name_make(char *path, int (*make)(const char *path, int flags), int flags) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const size_t n = strlen(path);
    int result = -1;
    errno = EEXIST;
    for (int i = 0; n >= 6 && i < 1000 && result < 0 && errno == EEXIST; i++) {
        LARGE_INTEGER now;
        QueryPerformanceCounter(&now);
        uint64_t x = (uint64_t) now.QuadPart * 0x9E3779B97F4A7C15u + GetCurrentThreadId();
        for (size_t k = n - 6; k < n; k++, x /= 36) {
            path[k] = letters[x % 36];
        }
        result = make(path, flags);
    }
    return result;
}

static int file_make(const char *path, int flags) {
    return posix_open(path, flags | O_RDWR | O_CREAT | O_EXCL, 0600);
}

static int folder_make(const char *path, int flags) {
    (void) flags;
    return posix_mkdir(path, 0700);
}

int posix_mkostemp(char *path, int flags) {
    return name_make(path, file_make, flags);
}

char *posix_mkdtemp(char *path) {
    return name_make(path, folder_make, 0) == 0 ? path : NULL;
}

ssize_t posix_pread(int fd, void *out, size_t size, off_t at) {
    const HANDLE file = (HANDLE) _get_osfhandle(fd);
    OVERLAPPED place = {.Offset = (DWORD) (uint64_t) at, .OffsetHigh = (DWORD) ((uint64_t) at >> 32)};
    DWORD n = 0;
    if (file == INVALID_HANDLE_VALUE) {
        errno = EBADF;
        return -1;
    }
    if (!ReadFile(file, out, size > 1u << 30 ? 1u << 30 : (DWORD) size, &n, &place) && GetLastError() != ERROR_HANDLE_EOF) {
        return fail_as_system();
    }
    return (ssize_t) n;
}

int posix_fallocate(int fd, off_t at, off_t size) {
    return _chsize_s(fd, at + size);
}

// ---- streams that a function receives ----

// The bytes are collected in a file, which the system keeps in memory if it can. fclose passes them to the function.
static struct cookie_stream {
    struct cookie_stream *next;
    FILE *file;
    void *cookie;
    cookie_write_function_t *write;
} * streams;
static SRWLOCK streams_lock = SRWLOCK_INIT;

static FILE *spool_open(void) {
    wchar_t folder[MAX_PATH + 1], path[MAX_PATH + 1];
    if (GetTempPathW(MAX_PATH + 1, folder) == 0 || GetTempFileNameW(folder, L"ber", 0, path) == 0) {
        errno = EIO;
        return NULL;
    }
    return _wfopen(path, L"w+bTD"); // T: kept in memory; D: removed when it is closed
}

FILE *fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions) {
    (void) mode;
    struct cookie_stream *s = malloc(sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    FILE *file = spool_open();
    if (file == NULL) {
        free(s);
        return NULL;
    }
    AcquireSRWLockExclusive(&streams_lock);
    *s = (struct cookie_stream){streams, file, cookie, functions.write};
    streams = s;
    ReleaseSRWLockExclusive(&streams_lock);
    return file;
}

static struct cookie_stream *stream_take(const FILE *file) {
    AcquireSRWLockExclusive(&streams_lock);
    struct cookie_stream **at = &streams;
    while (*at != NULL && (*at)->file != file) {
        at = &(*at)->next;
    }
    struct cookie_stream *s = *at;
    if (s != NULL) {
        *at = s->next;
    }
    ReleaseSRWLockExclusive(&streams_lock);
    return s;
}

static bool stream_pass_on(const struct cookie_stream *s) {
    char bytes[8192];
    size_t n;
    if (fflush(s->file) != 0 || ferror(s->file)) {
        return false;
    }
    rewind(s->file);
    while ((n = fread(bytes, 1, sizeof bytes, s->file)) > 0) {
        if (s->write(s->cookie, bytes, n) != (ssize_t) n) {
            return false;
        }
    }
    return !ferror(s->file);
}

int posix_fclose(FILE *file) {
    struct cookie_stream *s = stream_take(file);
    const bool ok = s == NULL || stream_pass_on(s);
    free(s);
#undef fclose
    return fclose(file) == 0 && ok ? 0 : EOF;
}

ssize_t posix_getline(char **line, size_t *cap, FILE *file) {
    size_t n = 0;
    for (int c; (c = getc(file)) != EOF;) {
        if (*line == NULL || n + 2 > *cap) {
            const size_t larger = 2 * n + 128;
            char *p = realloc(*line, larger);
            if (p == NULL) {
                return -1;
            }
            *line = p;
            *cap = larger;
        }
        (*line)[n++] = (char) c;
        if (c == '\n') {
            break;
        }
    }
    if (n == 0) {
        return -1;
    }
    (*line)[n] = '\0';
    return (ssize_t) n;
}

// ---- folders ----

struct posix_dir {
    HANDLE search;
    WIN32_FIND_DATAW found;
    bool has_found; // `found` is the next entry
    struct dirent entry;
};

DIR *posix_opendir(const char *path) {
    char pattern[PATH_MAX + 3];
    struct stat st;
    if (posix_stat(path, &st) != 0) {
        return NULL;
    }
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return NULL;
    }
    snprintf(pattern, sizeof pattern, "%s/*", path);
    DIR *dir = calloc(1, sizeof *dir);
    wchar_t *wide = dir != NULL ? posix_wide(pattern) : NULL;
    if (wide == NULL) {
        free(dir);
        return NULL;
    }
    dir->search = FindFirstFileW(wide, &dir->found);
    free(wide);
    if (dir->search == INVALID_HANDLE_VALUE) {
        errno = error_of_system();
        free(dir);
        return NULL;
    }
    dir->has_found = true;
    return dir;
}

struct dirent *posix_readdir(DIR *dir) {
    if (!dir->has_found) {
        return NULL;
    }
    const int n =
        WideCharToMultiByte(CP_UTF8, 0, dir->found.cFileName, -1, dir->entry.d_name, (int) sizeof dir->entry.d_name, NULL, NULL);
    dir->has_found = FindNextFileW(dir->search, &dir->found);
    return n > 0 ? &dir->entry : posix_readdir(dir);
}

int posix_closedir(DIR *dir) {
    FindClose(dir->search);
    free(dir);
    return 0;
}

int posix_alphasort(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

int posix_scandir(const char *path, struct dirent ***entries, int (*is_wanted)(const struct dirent *),
    int (*compare)(const struct dirent **, const struct dirent **)) {
    struct dirent **list = NULL;
    size_t n = 0;
    DIR *dir = posix_opendir(path);
    if (dir == NULL) {
        return -1;
    }
    for (struct dirent *e; (e = posix_readdir(dir)) != NULL;) {
        if (!is_wanted(e)) {
            continue;
        }
        struct dirent **larger = realloc(list, (n + 1) * sizeof *list);
        if (larger == NULL) {
            goto fail;
        }
        list = larger;
        list[n] = malloc(sizeof *e);
        if (list[n] == NULL) {
            goto fail;
        }
        *list[n++] = *e;
    }
    posix_closedir(dir);
    if (n > 0) {
        qsort(list, n, sizeof *list, (int (*)(const void *, const void *)) compare);
    }
    *entries = list;
    return (int) n;
fail:
    while (n > 0) {
        free(list[--n]);
    }
    free(list);
    posix_closedir(dir);
    errno = ENOMEM;
    return -1;
}
