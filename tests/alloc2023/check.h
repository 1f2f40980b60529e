// SPDX-License-Identifier: MIT
// check.h: the headers of the 2023 API and expect.h, for all test programs of the 2023 API.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "expect.h"

#include <string.h>
