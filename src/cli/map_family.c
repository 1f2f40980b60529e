// SPDX-License-Identifier: MIT
// map_family.c: which family an op belongs to, and the colour of each family on light and on dark ground. One row an op or a
// beginning of names; the first that matches counts.

#include "cli/map.h"

#include <string.h>

enum family {
    FAMILY_MATMUL,
    FAMILY_ATTENTION,
    FAMILY_NORM,
    FAMILY_ELEMENTWISE,
    FAMILY_ACTIVATION,
    FAMILY_MOVE,
    FAMILY_CONV,
    FAMILY_STATE,
    FAMILY_REDUCE,
    FAMILY_TRAIN,
    FAMILY_INPUT,
    FAMILY_OTHER,
    N_FAMILIES
};

const struct map_family map_families[] = {
    [FAMILY_MATMUL]      = {"matrix product", "#3b6fb6", "#5b8fd6"},
    [FAMILY_ATTENTION]   = {"attention", "#d9772b", "#e8904a"},
    [FAMILY_NORM]        = {"norm", "#218c7e", "#3fb3a3"},
    [FAMILY_ELEMENTWISE] = {"elementwise", "#6f9a35", "#92bd55"},
    [FAMILY_ACTIVATION]  = {"activation", "#c49a1a", "#d9b545"},
    [FAMILY_MOVE]        = {"copy, rows", "#8566a8", "#a78bc8"},
    [FAMILY_CONV]        = {"convolution", "#4f4bb8", "#7d79e0"},
    [FAMILY_STATE]       = {"state space", "#b34a7c", "#d5719f"},
    [FAMILY_REDUCE]      = {"reduce, sort", "#3795b5", "#5cb8d6"},
    [FAMILY_TRAIN]       = {"training", "#9a5536", "#c27a58"},
    [FAMILY_INPUT]       = {"input", "#77828c", "#8f9aa5"},
    [FAMILY_OTHER]       = {"other", "#a39c8b", "#b3ad9d"},
};
const int map_n_families = N_FAMILIES;

static const struct {
    const char *op; // with * at its end: every op that begins so
    enum family family;
} rows[] = {
    {"NONE", FAMILY_INPUT},
    {"SILU_BACK", FAMILY_TRAIN},
    {"RMS_NORM_BACK", FAMILY_TRAIN},
    {"SOFT_MAX_BACK", FAMILY_TRAIN},
    {"ROPE_BACK", FAMILY_TRAIN},
    {"REPEAT_BACK", FAMILY_TRAIN},
    {"GET_ROWS_BACK", FAMILY_TRAIN},
    {"IM2COL_BACK", FAMILY_TRAIN},
    {"POOL_2D_BACK", FAMILY_TRAIN},
    {"FLASH_ATTN_BACK", FAMILY_TRAIN},
    {"CROSS_ENTROPY*", FAMILY_TRAIN},
    {"OPT_STEP*", FAMILY_TRAIN},
    {"MUL_MAT*", FAMILY_MATMUL},
    {"OUT_PROD", FAMILY_MATMUL},
    {"FLASH_ATTN*", FAMILY_ATTENTION},
    {"SOFT_MAX", FAMILY_ATTENTION},
    {"ROPE", FAMILY_ATTENTION},
    {"DIAG_MASK*", FAMILY_ATTENTION},
    {"GET_REL_POS", FAMILY_ATTENTION},
    {"ADD_REL_POS", FAMILY_ATTENTION},
    {"LIGHTNING_INDEXER", FAMILY_ATTENTION},
    {"NORM", FAMILY_NORM},
    {"RMS_NORM", FAMILY_NORM},
    {"GROUP_NORM", FAMILY_NORM},
    {"L2_NORM", FAMILY_NORM},
    {"CONV*", FAMILY_CONV},
    {"IM2COL*", FAMILY_CONV},
    {"COL2IM*", FAMILY_CONV},
    {"POOL*", FAMILY_CONV},
    {"UPSCALE", FAMILY_CONV},
    {"SSM*", FAMILY_STATE},
    {"RWKV*", FAMILY_STATE},
    {"GATED_*", FAMILY_STATE},
    {"SOLVE_TRI", FAMILY_STATE},
    {"TRI", FAMILY_STATE},
    {"SUM*", FAMILY_REDUCE},
    {"MEAN", FAMILY_REDUCE},
    {"CUMSUM", FAMILY_REDUCE},
    {"ARG*", FAMILY_REDUCE},
    {"TOP_K", FAMILY_REDUCE},
    {"COUNT_EQUAL", FAMILY_REDUCE},
    {"ADD*", FAMILY_ELEMENTWISE},
    {"SUB", FAMILY_ELEMENTWISE},
    {"MUL", FAMILY_ELEMENTWISE},
    {"DIV", FAMILY_ELEMENTWISE},
    {"SCALE", FAMILY_ELEMENTWISE},
    {"SQR*", FAMILY_ELEMENTWISE},
    {"LOG", FAMILY_ELEMENTWISE},
    {"SIN", FAMILY_ELEMENTWISE},
    {"COS", FAMILY_ELEMENTWISE},
    {"CLAMP", FAMILY_ELEMENTWISE},
    {"ACC", FAMILY_ELEMENTWISE},
    {"ABS", FAMILY_ELEMENTWISE},
    {"SGN", FAMILY_ELEMENTWISE},
    {"NEG", FAMILY_ELEMENTWISE},
    {"STEP", FAMILY_ELEMENTWISE},
    {"FLOOR", FAMILY_ELEMENTWISE},
    {"CEIL", FAMILY_ELEMENTWISE},
    {"ROUND", FAMILY_ELEMENTWISE},
    {"TRUNC", FAMILY_ELEMENTWISE},
    {"TANH", FAMILY_ACTIVATION},
    {"ELU", FAMILY_ACTIVATION},
    {"XIELU", FAMILY_ACTIVATION},
    {"*RELU", FAMILY_ACTIVATION},
    {"SIGMOID", FAMILY_ACTIVATION},
    {"SILU", FAMILY_ACTIVATION},
    {"GELU*", FAMILY_ACTIVATION},
    {"HARD*", FAMILY_ACTIVATION},
    {"EXP*", FAMILY_ACTIVATION},
    {"SOFTPLUS", FAMILY_ACTIVATION},
    {"UNARY*", FAMILY_ACTIVATION},
    {"GLU*", FAMILY_ACTIVATION},
    {"REGLU", FAMILY_ACTIVATION},
    {"GEGLU*", FAMILY_ACTIVATION},
    {"SWIGLU*", FAMILY_ACTIVATION},
    {"CPY", FAMILY_MOVE},
    {"CONT", FAMILY_MOVE},
    {"DUP", FAMILY_MOVE},
    {"CONCAT", FAMILY_MOVE},
    {"REPEAT", FAMILY_MOVE},
    {"SET*", FAMILY_MOVE},
    {"GET_ROWS", FAMILY_MOVE},
    {"PAD*", FAMILY_MOVE},
    {"ROLL", FAMILY_MOVE},
    {"WIN_*", FAMILY_MOVE},
    {"FILL", FAMILY_MOVE},
    {"ARANGE", FAMILY_MOVE},
    {"DIAG", FAMILY_MOVE},
    {"TIMESTEP_EMBEDDING", FAMILY_MOVE},
    {"VIEW", FAMILY_MOVE},
    {"RESHAPE", FAMILY_MOVE},
    {"PERMUTE", FAMILY_MOVE},
    {"TRANSPOSE", FAMILY_MOVE},
};

static bool is_match(const char *op, const char *pattern) {
    const size_t n = strlen(pattern);
    if (pattern[0] == '*') {
        return cli_ends_with(op, pattern + 1);
    }
    return pattern[n - 1] == '*' ? strncmp(op, pattern, n - 1) == 0 : strcmp(op, pattern) == 0;
}

int map_family_of(const char *op) {
    if (op[0] == '\0') {
        return FAMILY_INPUT;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_match(op, rows[i].op)) {
            return (int) rows[i].family;
        }
    }
    return FAMILY_OTHER;
}
