// SPDX-License-Identifier: MIT
// device.h: the one CPU device.
#pragma once

#include "cpu/cpu.h"

#include "ggml-backend-impl.h"

ggml_backend_dev_t cpu_device(void);
