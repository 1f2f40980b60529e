// SPDX-License-Identifier: MIT
// limits.h: the memory that `berth fit` may fill: of all devices together, and of each.
#pragma once

#include "cli/models.h"

#define FIT_ALL (-1)  // the sum over all devices
#define FIT_NONE (-2) // no limit

// One --memory: N, or NAME=N; or what a GPU has free, if it is not named.
struct fit_limit {
    const char *text;   // as given, NULL: the device's own
    size_t name_length; // of the device's name at the start of text, 0: all devices
    int device;         // FIT_ALL or an index in cli_model.devices
    uint64_t bytes;
};

struct fit_limits {
    struct fit_limit *items;
    size_t n;
};

// Adds what --memory was given, one or several with commas between, which are cut there; CLI_OK, or the exit code after a
// message.
int fit_limits_add(struct fit_limits *limits, const char *command, char *text);
// The device that a limit names, FIT_ALL, or FIT_NONE if there is none of the name.
int fit_limit_device(const struct fit_limit *limit, const struct model_devices *devices);
// Finds the devices that are named, and adds what the other GPUs have free; the same.
int fit_limits_resolve(struct fit_limits *limits, const struct workbench *m);
void fit_limits_free(struct fit_limits *limits);

// Bytes on a device, or with FIT_ALL on all, of what the session was planned for.
uint64_t fit_bytes(const struct workbench *m, int device);
// The first limit that the session passes: a device, FIT_ALL, or FIT_NONE if it stays within all.
int fit_limits_passed(const struct fit_limits *limits, const struct workbench *m);
// The limit of a device or of all; NULL: none.
const struct fit_limit *fit_limits_get(const struct fit_limits *limits, int device);
