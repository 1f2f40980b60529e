// SPDX-License-Identifier: MIT
// berth-gguf.h: GGUF files that are mapped into memory instead of read. Part of berth.h, whose general rules hold.
//
// Pages of a map are shared between processes, and opening copies nothing. If another program changes the file, the data change
// here too. If another program truncates the file, reading the missing part raises SIGBUS, which ends the process unless it is
// caught. For files that others may change, set `read`: it makes a copy in memory.
//
// Several threads may use one map at the same time, except while it is closed.
#pragma once

#include "ggml.h"
#include "gguf.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// A file in memory.
struct berth_gguf_map;

// Receives the progress of loading: done of all bytes are in memory. If it returns false, loading stops and fails.
typedef bool (*berth_gguf_progress_t)(size_t done, size_t all, void *user_data);

// How to open a map. All members may be 0.
struct berth_gguf_map_params {
    berth_gguf_progress_t progress; // called with (0, all) first and (all, all) last; may be NULL
    void *user_data;                // argument of progress
    bool prefetch;                  // read all tensors now; otherwise each page is read at its first use
    bool read;                      // copy the file into memory of this process instead of mapping it
};

// ---- open and close ----

// Maps a file for reading. The header must be valid and the file must contain the data of every tensor. params may be NULL. Close
// the map with berth_gguf_map_close. Returns NULL on failure.
BERTH_API struct berth_gguf_map *berth_gguf_map_open(const char *path, const struct berth_gguf_map_params *params);

// Closes the map and frees its contexts. Pointers into it must not be used any more.
BERTH_API void berth_gguf_map_close(struct berth_gguf_map *map);

// ---- contents ----

// Returns the keys and tensor descriptions of the file. The map owns them.
BERTH_API const struct gguf_context *berth_gguf_map_meta(const struct berth_gguf_map *map);

// Returns a context with the tensors in file order. Their data are in the map and must not be written. The map owns the context.
BERTH_API struct ggml_context *berth_gguf_map_tensors(const struct berth_gguf_map *map);

// Returns the address of a tensor's data, aligned as the file states. Returns NULL if there is no such tensor.
BERTH_API const void *berth_gguf_map_data(const struct berth_gguf_map *map, int64_t tensor_id);

// Returns the address of the data of the first tensor, for example for ggml_backend_cpu_buffer_from_ptr. Returns NULL if the file
// has no data.
BERTH_API const void *berth_gguf_map_base(const struct berth_gguf_map *map);

// Returns the bytes from berth_gguf_map_base to the end of the last tensor, padding between tensors included.
BERTH_API size_t berth_gguf_map_size(const struct berth_gguf_map *map);

// Releases the memory of a range of the map that is not needed now. Only whole pages are released. They are read from the file
// when they are used the next time. It does nothing for a copy.
BERTH_API void berth_gguf_map_drop(const struct berth_gguf_map *map, const void *data, size_t size);

#ifdef __cplusplus
}
#endif
