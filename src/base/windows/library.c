// SPDX-License-Identifier: MIT
// library.c: loads libraries (dlfcn.h).

#include "base/windows/posix.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include <psapi.h> // requires the header above

static _Thread_local char error_text[256];
static _Thread_local bool has_error;

static void error_set(DWORD code) {
    has_error = true;
    const DWORD n = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code,
        MAKELANGID(LANG_ENGLISH, SUBLANG_ENGLISH_US), error_text, sizeof error_text, NULL);
    if (n == 0) {
        snprintf(error_text, sizeof error_text, "error %lu", (unsigned long) code);
    }
    error_text[strcspn(error_text, "\r\n")] = '\0';
}

void *posix_dlopen(const char *path, int flags) {
    if (path == NULL) {
        return GetModuleHandleW(NULL);
    }
    wchar_t *wide = posix_wide(path);
    if (wide == NULL) {
        error_set(ERROR_INVALID_NAME);
        return NULL;
    }
    const bool has_folder = strpbrk(path, "/\\") != NULL;
    for (wchar_t *c = wide; *c != L'\0'; c++) { // LoadLibraryEx requires backslashes
        if (*c == L'/') {
            *c = L'\\';
        }
    }
    wchar_t *full = has_folder ? _wfullpath(NULL, wide, 0) : NULL;
    const wchar_t *name = full != NULL ? full : wide;
    HMODULE module = NULL;
    if ((flags & RTLD_NOLOAD) != 0) {
        (void) GetModuleHandleExW(0, name, &module);
    } else {
        // No dialog box if the file is damaged.
        DWORD mode = 0;
        SetThreadErrorMode(SEM_FAILCRITICALERRORS, &mode);
        module = LoadLibraryExW(name, NULL, has_folder ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
        const DWORD code = GetLastError();
        SetThreadErrorMode(mode, NULL);
        SetLastError(code);
    }
    if (module == NULL) {
        error_set(GetLastError());
    }
    free(wide);
    free(full);
    return module;
}

static void *symbol_anywhere(const char *name) {
    HMODULE modules[1024];
    DWORD size = 0;
    void *p = NULL;
    if (!K32EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &size)) {
        return NULL;
    }
    for (size_t i = 0; p == NULL && i < size / sizeof modules[0] && i < sizeof modules / sizeof modules[0]; i++) {
        p = (void *) (uintptr_t) GetProcAddress(modules[i], name);
    }
    return p;
}

void *posix_dlsym(void *library, const char *name) {
    void *p = library != RTLD_DEFAULT ? (void *) (uintptr_t) GetProcAddress(library, name) : symbol_anywhere(name);
    if (p == NULL) {
        error_set(ERROR_PROC_NOT_FOUND);
    }
    return p;
}

int posix_dlclose(void *library) {
    return FreeLibrary(library) ? 0 : -1;
}

char *posix_dlerror(void) {
    const bool had_error = has_error;
    has_error = false;
    return had_error ? error_text : NULL;
}

int posix_dladdr(const void *at, Dl_info *info) {
    static _Thread_local char path[PATH_MAX];
    wchar_t wide[PATH_MAX];
    HMODULE module;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
            (const wchar_t *) at, &module)) {
        return 0;
    }
    const DWORD n = GetModuleFileNameW(module, wide, PATH_MAX);
    if (n == 0 || n == PATH_MAX || WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, PATH_MAX, NULL, NULL) == 0) {
        return 0;
    }
    for (char *c = path; *c != '\0'; c++) {
        if (*c == '\\') {
            *c = '/';
        }
    }
    info->dli_fname = path;
    info->dli_fbase = module;
    return 1;
}
