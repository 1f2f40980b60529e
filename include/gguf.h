// SPDX-License-Identifier: MIT
// gguf.h: read and write GGUF model files.
//
// A gguf_context holds the keys and the descriptions of the tensors of one file. The data of tensors are not part of it: they are
// in a ggml_context that is read with it, or stay in the file. berth-gguf.h maps a file into memory instead of reading it.
//
// General rules:
//   - Sizes and offsets are in bytes. Files are little-endian; versions 2 and 3 can be read.
//   - Keys and tensors are numbered from 0 in the order of the file. Setting or removing a key changes the numbers of later keys.
//   - Strings and arrays that functions return belong to the context. They are valid until the key is set or removed, or the
//     context freed.
//   - A function that fails returns NULL, 0, false or -1 and sets berth_last_error() (berth.h). A failed change leaves the
//     context as it was. Readers check every number of the file: a damaged file is a failure.
//   - Every function accepts NULL.
//   - Several threads may read one context at the same time. A change requires that no other thread uses it.
#pragma once

#include "ggml.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// The first four bytes of a file.
#define GGUF_MAGIC "GGUF"
// The version that new contexts have.
#define GGUF_VERSION 3
// The key of the alignment of tensor data, a u32 that must be a power of two.
#define GGUF_KEY_GENERAL_ALIGNMENT "general.alignment"
// The alignment of files without that key.
#define GGUF_DEFAULT_ALIGNMENT 32

#ifdef __cplusplus
extern "C" {
#endif

// Types of values.
enum gguf_type {
    GGUF_TYPE_UINT8 = 0,    // 1 byte
    GGUF_TYPE_INT8 = 1,     // 1 byte
    GGUF_TYPE_UINT16 = 2,   // 2 bytes
    GGUF_TYPE_INT16 = 3,    // 2 bytes
    GGUF_TYPE_UINT32 = 4,   // 4 bytes
    GGUF_TYPE_INT32 = 5,    // 4 bytes
    GGUF_TYPE_FLOAT32 = 6,  // 4 bytes
    GGUF_TYPE_BOOL = 7,     // 1 byte, 0 or 1
    GGUF_TYPE_STRING = 8,   // a length and text
    GGUF_TYPE_ARRAY = 9,    // an element type, a length and elements
    GGUF_TYPE_UINT64 = 10,  // 8 bytes
    GGUF_TYPE_INT64 = 11,   // 8 bytes
    GGUF_TYPE_FLOAT64 = 12, // 8 bytes
    GGUF_TYPE_COUNT = 13,   // number of types; not a type
};

struct gguf_context;

// What to read in addition to the keys.
struct gguf_init_params {
    bool no_alloc; // tensors get no data
    // NULL: no tensors are created. Otherwise *ctx becomes a new context with the tensors in file order, which the caller frees
    // with ggml_free. Unless no_alloc, their data are read into it, and a tensor that holds all data comes first. *ctx is NULL
    // after a failure.
    struct ggml_context **ctx;
};

// Reads a part of a file. The arguments are the user data, the destination, the offset in the file and the number of bytes.
// Returns the number of bytes read; 0 means the end or an error.
typedef size_t (*gguf_reader_callback_t)(void *, void *, uint64_t, size_t);

// ---- open ----

// Creates a context without keys and tensors. Free it with gguf_free. Returns NULL if memory runs out.
GGML_API struct gguf_context *gguf_init_empty(void);

// Reads a file from the current position of the stream. The stream stays open and the caller's. Free the result with gguf_free.
// Returns NULL on failure.
GGML_API struct gguf_context *gguf_init_from_file_ptr(FILE *file, struct gguf_init_params params);

// Reads the file of this name. Free the result with gguf_free. Returns NULL on failure.
GGML_API struct gguf_context *gguf_init_from_file(const char *fname, struct gguf_init_params params);

// Reads a file from size bytes of memory. Everything is copied, so the memory may be freed afterwards. Free the result with
// gguf_free. Returns NULL on failure.
GGML_API struct gguf_context *gguf_init_from_buffer(const void *data, size_t size, struct gguf_init_params params);

// Reads a file through a callback. Each call asks for at most max_chunk_read bytes; 0 means no limit. max_expected_size is the
// largest possible size of the file, UINT64_MAX if unknown. Free the result with gguf_free. Returns NULL on failure.
GGML_API struct gguf_context *gguf_init_from_callback(gguf_reader_callback_t callback, void *userdata, size_t max_chunk_read,
    uint64_t max_expected_size, struct gguf_init_params params);

// Frees the context. It does not free the ggml_context that was read with it.
GGML_API void gguf_free(struct gguf_context *ctx);

// Returns the name of a type, such as "u32". Returns NULL for a value that is not a type.
GGML_API const char *gguf_type_name(enum gguf_type type);

// Returns the size of a number of this type. Returns 0 for strings, arrays and values that are not a type.
GGML_API size_t gguf_type_size(enum gguf_type type);

// ---- read ----

// A getter of a number or a string also accepts an array with one element. A wrong id or type is an error: the result is then 0
// or NULL.

// Returns the version of the file.
GGML_API uint32_t gguf_get_version(const struct gguf_context *ctx);

// Returns the alignment of tensor data.
GGML_API size_t gguf_get_alignment(const struct gguf_context *ctx);

// Returns the offset of the tensor data in the file. Returns 0 for a context that was not read from a file.
GGML_API size_t gguf_get_data_offset(const struct gguf_context *ctx);

// Returns the number of keys.
GGML_API int64_t gguf_get_n_kv(const struct gguf_context *ctx);

// Returns the number of a key, or -1 if there is no such key.
GGML_API int64_t gguf_find_key(const struct gguf_context *ctx, const char *key);

// Returns the name of a key.
GGML_API const char *gguf_get_key(const struct gguf_context *ctx, int64_t key_id);

// Returns the type of a value, GGUF_TYPE_ARRAY for arrays. Returns GGUF_TYPE_COUNT for a wrong id.
GGML_API enum gguf_type gguf_get_kv_type(const struct gguf_context *ctx, int64_t key_id);

// Returns the type of the elements of an array. Returns GGUF_TYPE_COUNT, with an error, if the value is not an array.
GGML_API enum gguf_type gguf_get_arr_type(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type uint8.
GGML_API uint8_t gguf_get_val_u8(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type int8.
GGML_API int8_t gguf_get_val_i8(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type uint16.
GGML_API uint16_t gguf_get_val_u16(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type int16.
GGML_API int16_t gguf_get_val_i16(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type uint32.
GGML_API uint32_t gguf_get_val_u32(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type int32.
GGML_API int32_t gguf_get_val_i32(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type float32.
GGML_API float gguf_get_val_f32(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type uint64.
GGML_API uint64_t gguf_get_val_u64(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type int64.
GGML_API int64_t gguf_get_val_i64(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type float64.
GGML_API double gguf_get_val_f64(const struct gguf_context *ctx, int64_t key_id);

// Returns a value of type bool.
GGML_API bool gguf_get_val_bool(const struct gguf_context *ctx, int64_t key_id);

// Returns a string, or the only string of an array.
GGML_API const char *gguf_get_val_str(const struct gguf_context *ctx, int64_t key_id);

// Returns the address of a number, or of the only number of an array. Strings are an error.
GGML_API const void *gguf_get_val_data(const struct gguf_context *ctx, int64_t key_id);

// Returns the number of elements of an array. Returns 1 for other values.
GGML_API size_t gguf_get_arr_n(const struct gguf_context *ctx, int64_t key_id);

// Returns the address of the first number of an array. Arrays of strings are an error.
GGML_API const void *gguf_get_arr_data(const struct gguf_context *ctx, int64_t key_id);

// Returns string i of an array of strings.
GGML_API const char *gguf_get_arr_str(const struct gguf_context *ctx, int64_t key_id, size_t i);

// Returns the number of tensors.
GGML_API int64_t gguf_get_n_tensors(const struct gguf_context *ctx);

// Returns the number of a tensor, or -1 if there is no such tensor.
GGML_API int64_t gguf_find_tensor(const struct gguf_context *ctx, const char *name);

// Returns the offset of a tensor's data, counted from gguf_get_data_offset.
GGML_API size_t gguf_get_tensor_offset(const struct gguf_context *ctx, int64_t tensor_id);

// Returns the name of a tensor.
GGML_API const char *gguf_get_tensor_name(const struct gguf_context *ctx, int64_t tensor_id);

// Returns the four extents of a tensor. Extents that the file does not state are 1.
GGML_API const int64_t *gguf_get_tensor_ne(const struct gguf_context *ctx, int64_t tensor_id);

// Returns the type of a tensor. Returns GGML_TYPE_COUNT for a wrong id.
GGML_API enum ggml_type gguf_get_tensor_type(const struct gguf_context *ctx, int64_t tensor_id);

// Returns the size of a tensor's data, without padding.
GGML_API size_t gguf_get_tensor_size(const struct gguf_context *ctx, int64_t tensor_id);

// ---- change ----

// A key that is set moves to the end, whether it existed or not. The name of a key must not be empty. The setters return nothing;
// a failure is in berth_last_error().

// Removes a key. Returns the number that it had, or -1 if there is no such key.
GGML_API int64_t gguf_remove_key(struct gguf_context *ctx, const char *key);

// Sets a key to a value of type uint8.
GGML_API void gguf_set_val_u8(struct gguf_context *ctx, const char *key, uint8_t val);

// Sets a key to a value of type int8.
GGML_API void gguf_set_val_i8(struct gguf_context *ctx, const char *key, int8_t val);

// Sets a key to a value of type uint16.
GGML_API void gguf_set_val_u16(struct gguf_context *ctx, const char *key, uint16_t val);

// Sets a key to a value of type int16.
GGML_API void gguf_set_val_i16(struct gguf_context *ctx, const char *key, int16_t val);

// Sets a key to a value of type uint32.
GGML_API void gguf_set_val_u32(struct gguf_context *ctx, const char *key, uint32_t val);

// Sets a key to a value of type int32.
GGML_API void gguf_set_val_i32(struct gguf_context *ctx, const char *key, int32_t val);

// Sets a key to a value of type float32.
GGML_API void gguf_set_val_f32(struct gguf_context *ctx, const char *key, float val);

// Sets a key to a value of type uint64.
GGML_API void gguf_set_val_u64(struct gguf_context *ctx, const char *key, uint64_t val);

// Sets a key to a value of type int64.
GGML_API void gguf_set_val_i64(struct gguf_context *ctx, const char *key, int64_t val);

// Sets a key to a value of type float64.
GGML_API void gguf_set_val_f64(struct gguf_context *ctx, const char *key, double val);

// Sets a key to a value of type bool.
GGML_API void gguf_set_val_bool(struct gguf_context *ctx, const char *key, bool val);

// Sets a key to a copy of the string.
GGML_API void gguf_set_val_str(struct gguf_context *ctx, const char *key, const char *val);

// Sets a key to an array of n numbers of this type, which are copied. Strings and arrays are not allowed as elements.
GGML_API void gguf_set_arr_data(struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, size_t n);

// Sets a key to an array of copies of n strings.
GGML_API void gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, size_t n);

// Copies all keys of src. Keys that exist in both get the values of src. After a failure some keys may be copied.
GGML_API void gguf_set_kv(struct gguf_context *ctx, const struct gguf_context *src);

// Adds a tensor after the others. Its name must be new, and it must be contiguous. Its data are not copied: the tensor's memory
// must be valid until the file is written.
GGML_API void gguf_add_tensor(struct gguf_context *ctx, const struct ggml_tensor *tensor);

// Changes the type of a tensor, and with it the offsets of later tensors. The data must then be set by gguf_set_tensor_data.
GGML_API void gguf_set_tensor_type(struct gguf_context *ctx, const char *name, enum ggml_type type);

// Sets the address of the data to write, in host memory. The data are not copied and must be valid until the file is written.
GGML_API void gguf_set_tensor_data(struct gguf_context *ctx, const char *name, const void *data);

// ---- write ----

// Writes the file to a stream. only_meta writes everything before the tensor data. The stream stays open and the caller's.
// Returns false if a tensor has no data or writing fails.
GGML_API bool gguf_write_to_file_ptr(const struct gguf_context *ctx, FILE *file, bool only_meta);

// Writes a file, or with only_meta everything before the tensor data. An existing file of this name stays as it is until the new
// one is complete. Returns false on failure.
GGML_API bool gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta);

// Returns the size of everything before the tensor data, padding included.
GGML_API size_t gguf_get_meta_size(const struct gguf_context *ctx);

// Writes everything before the tensor data to memory, which must have room for gguf_get_meta_size bytes.
GGML_API void gguf_get_meta_data(const struct gguf_context *ctx, void *data);

#ifdef __cplusplus
}
#endif
