// SPDX-License-Identifier: MIT
// map_family.c: the colour of each family of ops on light and on dark ground.

#include "view/map.h"

const struct map_family map_families[] = {
    [BERTH_OP_MATMUL] = {"matrix product", "#3b6fb6", "#5b8fd6"},
    [BERTH_OP_ATTENTION] = {"attention", "#d9772b", "#e8904a"},
    [BERTH_OP_NORM] = {"norm", "#218c7e", "#3fb3a3"},
    [BERTH_OP_ELEMENTWISE] = {"elementwise", "#6f9a35", "#92bd55"},
    [BERTH_OP_ACTIVATION] = {"activation", "#c49a1a", "#d9b545"},
    [BERTH_OP_MOVE] = {"copy, rows", "#8566a8", "#a78bc8"},
    [BERTH_OP_CONV] = {"convolution", "#4f4bb8", "#7d79e0"},
    [BERTH_OP_STATE] = {"state space", "#b34a7c", "#d5719f"},
    [BERTH_OP_REDUCE] = {"reduce, sort", "#3795b5", "#5cb8d6"},
    [BERTH_OP_TRAIN] = {"training", "#9a5536", "#c27a58"},
    [BERTH_OP_INPUT] = {"input", "#77828c", "#8f9aa5"},
    [BERTH_OP_OTHER] = {"other", "#a39c8b", "#b3ad9d"},
};
const int map_n_families = BERTH_OP_FAMILIES;

int map_family_of(const char *op) {
    return (int) (op[0] == '\0' ? BERTH_OP_INPUT : berth_op_family(op));
}
