// SPDX-License-Identifier: MIT
// check.h: what all test programs of 2023 share: the headers of then, and what expect.h has.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "expect.h"

#include <string.h>
