// SPDX-License-Identifier: MIT
// ops.cpp: ops.c as C++, where overloads choose the form of a date.

#include "ops.c"
