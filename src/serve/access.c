// SPDX-License-Identifier: MIT
// access.c: the functions of access.h.

#include "serve/access.h"
#include "base/sha256.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define MAX_KEY_SIZE 4096

// ---- keys ----

static void digest_make(const char *key, size_t size, char hex[65]) {
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, key, size);
    sha256_end(&s, hex);
}

bool access_keys_read(struct access_keys *keys, const char *text, size_t size, const char *name, struct model_error *error) {
    *keys = (struct access_keys){0};
    for (size_t at = 0, n; at < size; at += n + 1) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        n = end != NULL ? (size_t) (end - line) : size - at;
        size_t length = n;
        while (length > 0 && isspace((uint8_t) line[length - 1])) {
            length--;
        }
        if (length == 0 || line[0] == '#') {
            continue;
        }
        if (length > MAX_KEY_SIZE) {
            access_keys_fini(keys);
            return model_fail(error, "%s: a key has %zu bytes, at most %d are allowed", name, length, MAX_KEY_SIZE);
        }
        if (!BERTH_GROW(&keys->digests, &keys->room, keys->n + 1)) {
            access_keys_fini(keys);
            return model_fail(error, "%s: out of memory", name);
        }
        digest_make(line, length, keys->digests[keys->n++]);
    }
    return keys->n > 0 || model_fail(error, "%s: contains no key; write one key per line", name);
}

void access_keys_fini(struct access_keys *keys) {
    berth_free(keys->digests);
    *keys = (struct access_keys){0};
}

bool access_key_is_valid(const struct access_keys *keys, const char *header) {
    static const char scheme[] = "Bearer ";
    char digest[65];
    uint8_t found = 0;
    if (header == NULL || strncasecmp(header, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    const char *key = header + sizeof scheme - 1;
    key += strspn(key, " ");
    const size_t size = strnlen(key, MAX_KEY_SIZE + 1);
    digest_make(key, size, digest);
    for (size_t i = 0; i < keys->n; i++) {
        uint8_t differs = 0;
        for (size_t k = 0; k < 64; k++) {
            differs |= (uint8_t) (digest[k] ^ keys->digests[i][k]);
        }
        found |= (uint8_t) (differs == 0);
    }
    return found != 0;
}

// ---- names of hosts ----

bool access_host_is_local(const char *host) {
    if (host == NULL) {
        return true; // HTTP/1.0; browsers always send it
    }
    if (strcmp(host, "::1") == 0) {
        return true; // --host has no brackets
    }
    const size_t n = host[0] == '[' ? strcspn(host, "]") + (strchr(host, ']') != NULL) : strcspn(host, ":");
    static const char *const names[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (n == strlen(names[i]) && strncasecmp(host, names[i], n) == 0) {
            return true;
        }
    }
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n;
}

bool access_origin_is_allowed(const char *origin, const char *host, const char *cors) {
    if (origin == NULL || (cors != NULL && (strcmp(cors, "*") == 0 || strcasecmp(cors, origin) == 0))) {
        return true;
    }
    const char *name = strstr(origin, "://");
    return name != NULL && host != NULL && strcasecmp(name + 3, host) == 0;
}
