// SPDX-License-Identifier: MIT
// page.h: the files of the chat page, which are embedded in the program.
#pragma once

struct page_file {
    const char *path; // in a URL
    const char *type; // Content-Type
    const char *text;
};

// Returns the file with this path. NULL: there is none.
const struct page_file *page_find(const char *path);
