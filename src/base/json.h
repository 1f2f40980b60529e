// SPDX-License-Identifier: MIT
// json.h: a JSON reader (RFC 8259) and a writer. The reader accepts any bytes. Every message has line and column.
//
//     berth_json_object(&r)                  // '{' expected
//     while (berth_json_key(&r, &key)) { ... read or berth_json_skip(&r) exactly one value ... }
//     if (r.status != GGML_STATUS_SUCCESS) ...
//
// The first failure is final: every later call returns false, and r.status has the reason.
#pragma once

#include "base/base.h"

#include <string.h>

#define BERTH_JSON_DEPTH_MAX 64

struct berth_json {
    const char *name; // name of the input, for messages
    const char *p, *end;
    const char *line_start;
    size_t line; // from 1
    int depth;
    bool is_first;     // nothing in the innermost object or array has been read yet
    char *text;        // the last string, with its escapes resolved
    size_t n_text_cap; // capacity of text
    enum ggml_status status;
};

struct berth_json_text {
    const char *text; // never NULL, not terminated, without NUL bytes; valid until the next string is read
    size_t len;
};

BERTH_API void berth_json_init(struct berth_json *r, const char *text, size_t size, const char *name);
BERTH_API void berth_json_fini(struct berth_json *r);

BERTH_API bool berth_json_object(struct berth_json *r);
BERTH_API bool berth_json_key(
    struct berth_json *r, struct berth_json_text *key); // false after the last key; '}' is consumed then
BERTH_API bool berth_json_array(struct berth_json *r);
BERTH_API bool berth_json_next(struct berth_json *r); // false after the last element; ']' is consumed then
BERTH_API bool berth_json_string(struct berth_json *r, struct berth_json_text *out);
BERTH_API bool berth_json_int(struct berth_json *r, int64_t min, int64_t max, int64_t *out);
BERTH_API bool berth_json_bool(struct berth_json *r, bool *out);
BERTH_API bool berth_json_null(struct berth_json *r); // consumes null if it is next; false otherwise, without failing
BERTH_API bool berth_json_number_text(struct berth_json *r, struct berth_json_text *out); // any number, as written
BERTH_API bool berth_json_skip(struct berth_json *r);                                     // one value of any kind
BERTH_API bool berth_json_done(struct berth_json *r);                                     // only blanks follow
BERTH_API char berth_json_peek(struct berth_json *r);                   // first character of the next token, '\0' at the end
BERTH_API bool berth_json_fail(struct berth_json *r, const char *what); // reports position p; returns false

static inline bool berth_json_is(struct berth_json_text key, const char *name) {
    return key.len == strlen(name) && (key.len == 0 || memcmp(key.text, name, key.len) == 0);
}

// The writer handles commas, quotes and escapes, and allocates nothing. Its only failures are those of the file.
//
//     struct berth_json_writer w = {.file = file};
//     berth_json_begin(&w, NULL, '{');
//     berth_json_printf(&w, "'name': %s, 'shape': [%d, %d], 'proven': %c", name, 4, 8, true);
//     berth_json_begin(&w, "items", '[');
//     ...
//     berth_json_end(&w); // ]
//     berth_json_end(&w); // }
struct berth_json_writer {
    FILE *file;
    uint64_t arrays; // one bit per open object or array, innermost in bit 0; 1: it is an array; at most 64 levels
    int line;        // the next value or closing bracket starts a new line, indented by line - 1 blanks; 0: no new line
    bool has_value;  // the innermost object or array has a value, so the writer puts a comma before the next one
};

BERTH_API void berth_json_begin(struct berth_json_writer *w, const char *key, char open); // open: '{' or '['; key: NULL in arrays
BERTH_API void berth_json_end(struct berth_json_writer *w);
BERTH_API void berth_json_line(struct berth_json_writer *w, int indent);         // the next value or end starts a line
BERTH_API void berth_json_put_key(struct berth_json_writer *w, const char *key); // the caller writes the value to the file

// Writes one value, or one or several members of an object. fmt is JSON with ' in place of ". It supports these conversions: the
// integers and floating-point numbers of printf (null if not finite), %s for a string (this function adds quotes and escapes; NULL
// becomes null), and %c for a condition (true or false).
#ifndef __clang__ // clang warns about a bool for %c; gcc checks the formats
BERTH_PRINTF(2, 3)
#endif
BERTH_API void berth_json_printf(struct berth_json_writer *w, const char *fmt, ...);

// Both functions write a string with quotes and escapes. Bytes that are not UTF-8 become U+FFFD. Only the first accepts NUL bytes.
BERTH_API void berth_json_write_text(const char *text, size_t len, FILE *file);
BERTH_API void berth_json_write_string(const char *text, FILE *file);
