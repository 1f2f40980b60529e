// SPDX-License-Identifier: MIT
// tiles.h: the configuration of AMX tiles. A kernel loads its own configuration and restores the previous one, because other
// libraries may rely on theirs.
#pragma once

#include <immintrin.h>
#include <stdint.h>

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_size[16]; // bytes
    uint8_t n_rows[16];
};

static inline void tiles_begin(struct tile_config *saved, const struct tile_config *own) {
    _tile_storeconfig(saved);
    __asm__ volatile("" : : "m"(*own)); // gcc assumes that the next instruction reads 8 bytes only
    _tile_loadconfig(own);
}

static inline void tiles_end(const struct tile_config *saved) {
    if (saved->palette != 0) {
        _tile_loadconfig(saved);
    } else {
        _tile_release(); // otherwise context switches save the tiles
    }
}
