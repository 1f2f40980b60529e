// SPDX-License-Identifier: MIT
// client_windows.c: takes the place of client.c on Windows: finds the release for which loaded libraries (clients) were built. Windows
// itself refuses to load a client that imports functions which Berth lacks.

#include "registry/registry.h"

#include <string.h>
#include <windows.h>

#include <psapi.h> // requires the header above

#define MODULES_MAX 1024

bool berth_client_release_of(const char *library, char *release, size_t size) {
    static const char prefix[] = "ggml.", suffix[] = ".dll";
    const size_t len = strlen(library), around = sizeof prefix - 1 + sizeof suffix - 1;
    if (len <= around || len - around >= size || _strnicmp(library, prefix, sizeof prefix - 1) != 0 ||
        _stricmp(library + len - (sizeof suffix - 1), suffix) != 0) {
        return false;
    }
    memcpy(release, library + sizeof prefix - 1, len - around);
    release[len - around] = '\0';
    return true;
}

// A client imports ggml.RELEASE.dll, so that library is loaded, too.
void berth_client_check(void) {
    HMODULE modules[MODULES_MAX];
    DWORD size = 0;
    if (!K32EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &size)) {
        return;
    }
    for (size_t i = 0; i < size / sizeof modules[0] && i < MODULES_MAX; i++) {
        char name[MAX_PATH], release[32];
        if (K32GetModuleBaseNameA(GetCurrentProcess(), modules[i], name, sizeof name) > 0 &&
            berth_client_release_of(name, release, sizeof release)) {
            berth_client_release(release);
        }
    }
}

#ifdef GGML_SHARED
__attribute__((constructor)) static void on_load(void) {
    berth_client_check();
}
#endif
