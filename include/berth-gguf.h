// SPDX-License-Identifier: MIT
// berth-gguf.h: GGUF files in place: mapped into memory instead of read, with a word on how far it is.
#pragma once

#include "ggml.h"
#include "gguf.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct berth_gguf_map;

// done of all bytes are in memory. False stops loading, which then fails.
typedef bool (*berth_gguf_progress_t)(size_t done, size_t all, void *user_data);

struct berth_gguf_map_params {
    berth_gguf_progress_t progress; // may be NULL; called with (0, all) first and (all, all) last
    void *user_data;
    bool prefetch; // bring all tensors into memory now; else each page comes when it is first touched
    bool read;     // no map: a copy of the file in memory of this process
};

// Maps a file for reading only. The header must be sound and every tensor's bytes must be there. params may be NULL. NULL, with
// berth_last_error(), if it cannot be had.
// What a map means: the file stays the memory. Processes share its pages and opening costs no copy; but who writes into the file
// changes what is read here, and who cuts it short makes reading there a signal, SIGBUS, which ends the process unless it is
// caught: mmap knows no other answer. For files that others may change, params->read asks for a copy: memory as large as the
// file, and nothing of what happens to the file afterwards is seen.
BERTH_API struct berth_gguf_map *berth_gguf_map_open(const char *path, const struct berth_gguf_map_params *params);
BERTH_API void berth_gguf_map_close(struct berth_gguf_map *map);

// The keys and tensors of the file; lives as long as the map.
BERTH_API const struct gguf_context *berth_gguf_map_meta(const struct berth_gguf_map *map);
// A context with the tensors in file order, their data in the map: read, never written. Lives as long as the map.
BERTH_API struct ggml_context *berth_gguf_map_tensors(const struct berth_gguf_map *map);
// Where a tensor's bytes lie, aligned as the file says; NULL for an id that is none.
BERTH_API const void *berth_gguf_map_data(const struct berth_gguf_map *map, int64_t tensor_id);
// All tensors: their first byte, and how many there are with the padding between. For ggml_backend_cpu_buffer_from_ptr.
BERTH_API const void *berth_gguf_map_base(const struct berth_gguf_map *map);
BERTH_API size_t berth_gguf_map_size(const struct berth_gguf_map *map);
// Bytes of the map that are not needed for now: whole pages of them are no memory of the process until they are read again.
BERTH_API void berth_gguf_map_drop(const struct berth_gguf_map *map, const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif
