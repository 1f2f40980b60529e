// SPDX-License-Identifier: MIT
// sys/ioctl.h: only the width of the console.
#pragma once

#define TIOCGWINSZ 1

struct winsize {
    unsigned short ws_row, ws_col;
};

#define ioctl posix_console_size
int posix_console_size(int fd, int command, struct winsize *size);
