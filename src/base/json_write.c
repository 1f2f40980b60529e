// SPDX-License-Identifier: MIT
// json_write.c: the JSON writer of json.h.

#include "base/json.h"

#include <math.h>
#include <stdarg.h>

// Returns the length in bytes of the UTF-8 sequence at t, of which `left` bytes are readable; 0: invalid (overlong, surrogate, cut
// off).
static size_t utf8_len(const uint8_t *t, size_t left) {
    if ((t[0] >= 0x80 && t[0] < 0xc2) || t[0] > 0xf4) {
        return 0;
    }
    const size_t n = (size_t) (1 + (t[0] >= 0xc2) + (t[0] >= 0xe0) + (t[0] >= 0xf0));
    for (size_t i = 1; i < n; i++) {
        if (i >= left || (t[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xed && t[1] >= 0xa0) || (t[0] == 0xf0 && t[1] < 0x90) ||
        (t[0] == 0xf4 && t[1] >= 0x90)) {
        return 0;
    }
    return n;
}

void berth_json_write_text(const char *text, size_t len, FILE *file) {
    fputc('"', file);
    for (size_t at = 0, n; at < len; at += n == 0 ? 1 : n) {
        const uint8_t c = (uint8_t) text[at];
        n = utf8_len((const uint8_t *) text + at, len - at);
        if (n == 0) {
            fputs("\\ufffd", file);
        } else if (c == '\n') {
            fputs("\\n", file);
        } else if (c == '\t') {
            fputs("\\t", file);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(file, "\\u%04x", c);
        } else if (c == 0xc2 && (uint8_t) text[at + 1] < 0xa0) { // U+0080 to U+009F are control characters of terminals too
            fprintf(file, "\\u%04x", (uint8_t) text[at + 1]);
        } else {
            if (c == '"' || c == '\\') {
                fputc('\\', file);
            }
            fwrite(text + at, 1, n, file);
        }
    }
    fputc('"', file);
}

void berth_json_write_string(const char *text, FILE *file) {
    berth_json_write_text(text, strlen(text), file);
}

// ---- values ----

static void value_begin(struct berth_json_writer *w) {
    if (w->has_value) {
        fputs(w->line > 0 ? "," : ", ", w->file);
    }
    if (w->line > 0) {
        fprintf(w->file, "\n%*s", w->line - 1, "");
    }
    w->line = 0;
    w->has_value = true;
}

void berth_json_put_key(struct berth_json_writer *w, const char *key) {
    value_begin(w);
    if (key != NULL) {
        berth_json_write_string(key, w->file);
        fputs(": ", w->file);
    }
}

void berth_json_begin(struct berth_json_writer *w, const char *key, char open) {
    berth_json_put_key(w, key);
    fputc(open, w->file);
    w->arrays = w->arrays << 1 | (open == '[');
    w->has_value = false;
}

void berth_json_end(struct berth_json_writer *w) {
    w->has_value = false; // no comma before the closing character
    value_begin(w);
    fputc(w->arrays & 1 ? ']' : '}', w->file);
    w->arrays >>= 1;
}

void berth_json_line(struct berth_json_writer *w, int indent) {
    w->line = indent + 1;
}

// ---- printf ----

static void double_write(FILE *file, const char *spec, double value) {
    if (isfinite(value)) {
        fprintf(file, spec, value);
    } else {
        fputs("null", file);
    }
}

// length: the length modifier before the conversion; 'L' stands for ll.
#define INTEGER_WRITE(file, spec, length, args, kind) \
    switch (length) { \
        case 'l': fprintf(file, spec, va_arg(args, kind long)); break; \
        case 'L': fprintf(file, spec, va_arg(args, kind long long)); break; \
        case 'z': fprintf(file, spec, va_arg(args, size_t)); break; \
        default: fprintf(file, spec, va_arg(args, kind int)); break; \
    }

void berth_json_printf(struct berth_json_writer *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    value_begin(w);
    for (const char *at = fmt; *at != '\0'; at++) {
        if (*at != '%') {
            fputc(*at == '\'' ? '"' : *at, w->file);
            continue;
        }
        const size_t len = 1 + strspn(at + 1, "0123456789.lz");
        char spec[32];
        snprintf(spec, sizeof spec, "%.*s", (int) len + 1, at);
        at += len;
        char length = at[-1];
        if (length == 'l' && at[-2] == 'l') {
            length = 'L';
        }
        const char *text;
        switch (*at) {
            case 'd':
            case 'i': INTEGER_WRITE(w->file, spec, length, args, signed) break;
            case 'u': INTEGER_WRITE(w->file, spec, length, args, unsigned) break;
            case 'c': fputs(va_arg(args, int) != 0 ? "true" : "false", w->file); break;
            case 's':
                text = va_arg(args, const char *);
                if (text != NULL) {
                    berth_json_write_string(text, w->file);
                } else {
                    fputs("null", w->file);
                }
                break;
            case 'e':
            case 'f':
            case 'g': double_write(w->file, spec, va_arg(args, double)); break;
            default: BERTH_ASSERT(false); goto done; // a conversion that this function does not support
        }
    }
done:
    va_end(args);
}
