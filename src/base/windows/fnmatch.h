// SPDX-License-Identifier: MIT
// fnmatch.h: matches a text with a pattern of '*', '?', '[a-z]', '[!a-z]' and '\x' (posix.c).
#pragma once

#define FNM_NOMATCH 1

#define fnmatch posix_fnmatch
int posix_fnmatch(const char *pattern, const char *text, int flags); // flags: 0. Returns 0 or FNM_NOMATCH
