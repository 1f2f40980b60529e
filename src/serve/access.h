// SPDX-License-Identifier: MIT
// access.h: decides who may use the server: API keys, and the checks that stop web pages of other sites from using a server on the
// user's own machine. No function here uses a socket.
#pragma once

#include "model/model.h"

struct access_keys {
    char (*digests)[65]; // [n] SHA-256 of each key, in hex
    size_t n, room;
};

// Reads a key per line. Empty lines and lines that begin with '#' are skipped. Fails if there is no key.
bool access_keys_read(struct access_keys *keys, const char *text, size_t size, const char *name, struct model_error *error);
void access_keys_fini(struct access_keys *keys);
// header: the value of Authorization; NULL: none. The time does not depend on how many characters of a key are right: digests of
// the keys are compared, and all bytes of all digests.
bool access_key_is_valid(const struct access_keys *keys, const char *header);

// Returns whether the name in a Host header, with or without a port, is localhost or a loopback address.
bool access_host_is_local(const char *host);
// Returns whether a page of this origin may use the server: the header is absent, the origin is the server itself, or it is the
// origin of --cors. cors NULL: none; "*": all.
bool access_origin_is_allowed(const char *origin, const char *host, const char *cors);
