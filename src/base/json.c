// SPDX-License-Identifier: MIT
// json.c: the JSON reader of json.h. One pass, no tree. Nesting is bounded, so that no input can exhaust the stack.
// The only allocation is one buffer for the last string with its escapes resolved.

#include "base/json.h"

#include <string.h>

void berth_json_init(struct berth_json *r, const char *text, size_t size, const char *name) {
    *r = (struct berth_json){.name = name, .p = text, .end = size > 0 ? text + size : text, .line_start = text, .line = 1};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        r->p += 3;
    }
}

void berth_json_fini(struct berth_json *r) {
    berth_free(r->text);
    r->text = NULL;
}

bool berth_json_fail(struct berth_json *r, const char *what) {
    if (r->status == GGML_STATUS_SUCCESS) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s:%zu:%zu: %s", r->name, r->line, (size_t) (r->p - r->line_start) + 1, what);
    }
    return false;
}

static void skip_blanks(struct berth_json *r) {
    for (; r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n'); r->p++) {
        if (*r->p == '\n') {
            r->line++;
            r->line_start = r->p + 1;
        }
    }
}

char berth_json_peek(struct berth_json *r) {
    skip_blanks(r);
    return r->status != GGML_STATUS_SUCCESS || r->p == r->end ? '\0' : *r->p;
}

static bool list_enter(struct berth_json *r, char open, const char *what) {
    if (berth_json_peek(r) != open) {
        return berth_json_fail(r, what);
    }
    if (r->depth == BERTH_JSON_DEPTH_MAX) {
        return berth_json_fail(r, "nested too deeply");
    }
    r->p++;
    r->depth++;
    r->is_first = true;
    return true;
}

bool berth_json_object(struct berth_json *r) {
    return list_enter(r, '{', "an object is expected");
}

bool berth_json_array(struct berth_json *r) {
    return list_enter(r, '[', "an array is expected");
}

// At the closing character, consumes it and returns false.
static bool list_advance(struct berth_json *r, char close, const char *what) {
    const char c = berth_json_peek(r);
    const bool is_first = r->is_first;
    r->is_first = false;
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    if (c == close && c != '\0') {
        r->p++;
        r->depth--;
        return false;
    }
    if (!is_first) {
        if (c != ',') {
            return berth_json_fail(r, what);
        }
        r->p++;
    }
    return true;
}

bool berth_json_next(struct berth_json *r) {
    return list_advance(r, ']', "',' or ']' is expected");
}

bool berth_json_key(struct berth_json *r, struct berth_json_text *key) {
    if (!list_advance(r, '}', "',' or '}' is expected") || !berth_json_string(r, key)) {
        return false;
    }
    if (berth_json_peek(r) != ':') {
        return berth_json_fail(r, "':' is expected");
    }
    r->p++;
    return true;
}

// ---- strings ----

static bool text_add(struct berth_json *r, size_t *len, const char *bytes, size_t n) {
    if (!BERTH_GROW(&r->text, &r->n_text_cap, *len + n)) {
        r->status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s:%zu: out of memory", r->name, r->line);
        return false;
    }
    memcpy(r->text + *len, bytes, n);
    *len += n;
    return true;
}

static bool hex4_read(struct berth_json *r, uint32_t *out) {
    *out = 0;
    if (r->end - r->p < 4) {
        return berth_json_fail(r, "four hex digits are expected after \\u");
    }
    for (int i = 0; i < 4; i++, r->p++) {
        const char c = *r->p;
        if (c >= '0' && c <= '9') {
            *out = *out * 16 + (uint32_t) (c - '0');
        } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
            *out = *out * 16 + (uint32_t) ((c | 32) - 'a' + 10);
        } else {
            return berth_json_fail(r, "four hex digits are expected after \\u");
        }
    }
    return true;
}

// p is after the 'u'. Surrogates must come in pairs.
static bool escape_unicode(struct berth_json *r, size_t *len) {
    uint32_t c, low;
    if (!hex4_read(r, &c)) {
        return false;
    }
    if (c >= 0xd800 && c < 0xdc00) {
        if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u') {
            return berth_json_fail(r, "unpaired surrogate");
        }
        r->p += 2;
        if (!hex4_read(r, &low)) {
            return false;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return berth_json_fail(r, "unpaired surrogate");
        }
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c == 0 || (c >= 0xdc00 && c < 0xe000)) {
        return berth_json_fail(r, c == 0 ? "a NUL character" : "unpaired surrogate");
    }
    char bytes[4];
    const size_t n = c < 0x80 ? 1 : 2 + (size_t) (c >= 0x800) + (size_t) (c >= 0x10000);
    for (size_t i = n; i-- > 1; c >>= 6) {
        bytes[i] = (char) (0x80 | (c & 0x3f));
    }
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char) (lead[n] | c);
    return text_add(r, len, bytes, n);
}

static bool escape_read(struct berth_json *r, size_t *len) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    r->p++;
    const char c = r->p < r->end ? *r->p : '\0';
    const char *at = c == '\0' ? NULL : strchr(from, c);
    if (c == 'u') {
        r->p++;
        return escape_unicode(r, len);
    }
    if (at == NULL) {
        return berth_json_fail(r, "unknown escape in a string");
    }
    r->p++;
    return text_add(r, len, &to[at - from], 1);
}

bool berth_json_string(struct berth_json *r, struct berth_json_text *out) {
    if (berth_json_peek(r) != '"') {
        return berth_json_fail(r, "a string is expected");
    }
    size_t len = 0;
    for (r->p++;;) {
        const char *plain_start = r->p;
        while (r->p < r->end && *r->p != '"' && *r->p != '\\' && (uint8_t) *r->p >= 0x20) {
            r->p++;
        }
        if (r->p > plain_start && !text_add(r, &len, plain_start, (size_t) (r->p - plain_start))) {
            return false;
        }
        if (r->p == r->end) {
            return berth_json_fail(r, "the text ends inside a string");
        }
        if (*r->p == '"') {
            r->p++;
            *out = (struct berth_json_text){len > 0 ? r->text : "", len};
            return true;
        }
        if (*r->p != '\\') {
            return berth_json_fail(r, "a control character in a string");
        }
        if (!escape_read(r, &len)) {
            return false;
        }
    }
}

// ---- numbers and words ----

static bool digits_skip(struct berth_json *r) {
    const char *start = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        r->p++;
    }
    return r->p > start;
}

bool berth_json_number_text(struct berth_json *r, struct berth_json_text *out) {
    berth_json_peek(r);
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    const char *start = r->p;
    r->p += r->p < r->end && *r->p == '-';
    const char *first = r->p;
    bool ok = digits_skip(r) && (*first != '0' || r->p == first + 1); // no leading zeros
    if (ok && r->p < r->end && *r->p == '.') {
        r->p++;
        ok = digits_skip(r);
    }
    if (ok && r->p < r->end && (*r->p | 32) == 'e') {
        r->p++;
        r->p += r->p < r->end && (*r->p == '+' || *r->p == '-');
        ok = digits_skip(r);
    }
    if (!ok) {
        return berth_json_fail(r, "a number is expected");
    }
    *out = (struct berth_json_text){start, (size_t) (r->p - start)};
    return true;
}

bool berth_json_int(struct berth_json *r, int64_t min, int64_t max, int64_t *out) {
    struct berth_json_text text;
    berth_json_peek(r);
    const char *start = r->p;
    if (!berth_json_number_text(r, &text)) {
        return false;
    }
    const bool minus = text.text[0] == '-';
    int64_t x = 0;
    bool ok = true;
    for (size_t i = minus; ok && i < text.len; i++) {
        const char c = text.text[i];
        ok = c >= '0' && c <= '9' && berth_mul_i64_ok(x, 10, &x) && berth_add_i64_ok(x, c - '0', &x);
    }
    *out = ok && minus ? -x : x;
    if (!ok || *out < min || *out > max) {
        char what[96];
        snprintf(what, sizeof what, "an integer from %lld to %lld is expected", (long long) min, (long long) max);
        r->p = start;
        return berth_json_fail(r, what);
    }
    return true;
}

static bool try_word(struct berth_json *r, const char *text) {
    const size_t len = strlen(text);
    berth_json_peek(r);
    if (r->status != GGML_STATUS_SUCCESS || (size_t) (r->end - r->p) < len || memcmp(r->p, text, len) != 0) {
        return false;
    }
    r->p += len;
    return true;
}

bool berth_json_bool(struct berth_json *r, bool *out) {
    *out = try_word(r, "true");
    return *out || try_word(r, "false") || berth_json_fail(r, "true or false is expected");
}

bool berth_json_null(struct berth_json *r) {
    return try_word(r, "null");
}

// Recursion is bounded by BERTH_JSON_DEPTH_MAX.
bool berth_json_skip(struct berth_json *r) {
    struct berth_json_text text;
    bool flag;
    switch (berth_json_peek(r)) {
        case '{':
            if (!berth_json_object(r)) {
                return false;
            }
            while (berth_json_key(r, &text) && berth_json_skip(r)) {
            }
            break;
        case '[':
            if (!berth_json_array(r)) {
                return false;
            }
            while (berth_json_next(r) && berth_json_skip(r)) {
            }
            break;
        case '"': berth_json_string(r, &text); break;
        case 't':
        case 'f': berth_json_bool(r, &flag); break;
        case 'n':
            if (!berth_json_null(r)) {
                berth_json_fail(r, "a value is expected");
            }
            break;
        case '\0': berth_json_fail(r, "a value is expected"); break;
        default: berth_json_number_text(r, &text); break;
    }
    return r->status == GGML_STATUS_SUCCESS;
}

bool berth_json_done(struct berth_json *r) {
    berth_json_peek(r);
    if (r->status != GGML_STATUS_SUCCESS) {
        return false;
    }
    return r->p == r->end || berth_json_fail(r, "text after the end");
}
