// SPDX-License-Identifier: MIT
// bias.c: measures the bias of products with quantised rows. A quantiser that minimises the squared error makes the elements a
// little too small on average. So a product of the quantised row with a similar row is too small. Such errors all have the same
// sign, so a sum of many products does not average them out.
//
// There are two kinds of rows x of 4,096 elements, each multiplied with a similar row y. Waves: x = 0.1 + 2 cos(i + phase), and y
// is x shifted by one radian. Normal rows: x is normally distributed, and y has the correlation cos(1) with x, as for waves. The
// error is |product of quantised x and y - product of x and y| / length, averaged over n_phases rows of each kind.
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

static double product_error(const struct bias_side *s, const float *x, const float *y, const float *w) {
    static _Alignas(8) uint8_t blocks[2 * N];
    static float back[N];
    s->rows(x, blocks, 1, N, w);
    s->deq(blocks, back, N);
    return fabs(product(back, y) - product(x, y));
}

bool bias_compare(const struct bias_side *ours, const struct bias_side *theirs, bool needs_matrix, int n_phases) {
    static float x[N], y[N], w[N];
    double ours_error[2] = {0}, theirs_error[2] = {0};
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
            ours_error[normal] += product_error(ours, x, y, needs_matrix ? w : NULL) / n_phases;
            theirs_error[normal] += product_error(theirs, x, y, needs_matrix ? w : NULL) / n_phases;
        }
    }
    printf(" | product error %.5f, reference %.5f; normal rows %.5f, reference %.5f", ours_error[0], theirs_error[0],
        ours_error[1], theirs_error[1]);
    // Without a bias, the errors of Berth and of the reference are random and differ by chance. The factor `luck` allows for that;
    // it decreases with n_phases.
    const double luck = 1 + 2 / sqrt(n_phases);
    return ours_error[0] <= luck * theirs_error[0] && ours_error[1] <= luck * theirs_error[1];
}
