// SPDX-License-Identifier: MIT
// bias.c: measures the bias of products. A fit with the least squared error makes levels a little too small: the part of a row
// that they cannot represent is missing, and products of the quantised row with similar rows come out too small. Sums of such
// products do not average this out.
//
// There are two kinds of rows of 4,096 elements: waves, 0.1 + 2 cos(i + phase), multiplied with the wave shifted by one radian;
// and normal rows, multiplied with a row of the same correlation, cos(1). The measure is |product - exact product| / length,
// averaged over phases or rows.
#include "bias.h"
#include "rows.h"

#include <stdio.h>

enum { N = 4096 };

static double product(const float *x, const float *y) {
    double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += (double) x[i] * y[i];
    }
    return sum / N;
}

static double off_by(const struct bias_side *s, const float *x, const float *y, const float *w) {
    static _Alignas(8) uint8_t blocks[2 * N];
    static float back[N];
    s->rows(x, blocks, 1, N, w);
    s->deq(blocks, back, N);
    return fabs(product(back, y) - product(x, y));
}

bool bias_compare(const struct bias_side *ours, const struct bias_side *theirs, bool needs_matrix, int n_phases) {
    static float x[N], y[N], w[N];
    double us[2] = {0}, them[2] = {0};
    for (int i = 0; i < N; i++) {
        w[i] = 1.0f;
    }
    for (int normal = 0; normal < 2; normal++) {
        for (int phase = 0; phase < n_phases; phase++) {
            for (int i = 0; i < N; i++) {
                const double a = gauss();
                x[i] = (float) (normal ? a : 0.1 + 2 * cos(i + 0.37 * phase));
                y[i] = (float) (normal ? cos(1) * a + sin(1) * gauss() : 0.1 + 2 * cos(i + 0.37 * phase + 1));
            }
            us[normal] += off_by(ours, x, y, needs_matrix ? w : NULL) / n_phases;
            them[normal] += off_by(theirs, x, y, needs_matrix ? w : NULL) / n_phases;
        }
    }
    printf(" | product error %.5f, reference %.5f; normal rows %.5f, reference %.5f", us[0], them[0], us[1], them[1]);
    // Without a bias, the remaining difference is random, also the reference's; more phases make it smaller.
    const double luck = 1 + 2 / sqrt(n_phases);
    return us[0] <= luck * them[0] && us[1] <= luck * them[1];
}
