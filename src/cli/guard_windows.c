// SPDX-License-Identifier: MIT
// guard_windows.c: takes the place of guard.c on Windows, which does not let a program truncate a mapped file.

#include "cli/cli.h"

void cli_guard_init(void) {
}
