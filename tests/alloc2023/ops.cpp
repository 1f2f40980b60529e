// SPDX-License-Identifier: MIT
// ops.cpp: ops.c compiled as C++, where overloads select the form of a date.

#include "ops.c"
