// SPDX-License-Identifier: MIT
// rounds.c: combines rounds of measurements into one cluster. Each number is the median over the rounds, because other programs
// may slow down some rounds. If fewer than half of the rounds are slow, they do not affect the median.

#include "simulate/cluster.h"

#include "base/min.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

double cluster_median(double *numbers, int n, bool is_time) {
    int n_known = 0;
    for (int i = 0; i < n; i++) {
        if (numbers[i] > 0 || (is_time && numbers[i] == 0)) {
            numbers[n_known++] = numbers[i];
        }
    }
    qsort(numbers, (size_t) n_known, sizeof numbers[0], by_value);
    if (n_known == 0) {
        return 0;
    }
    return numbers[is_time ? (n_known - 1) / 2 : n_known / 2];
}

// Returns the bytes of weights per second of the host's slowest device, when it computes alone or (is_together) while all devices
// of the host compute.
static double host_speed(const struct cluster *c, int h, enum ggml_type type, bool is_together) {
    double slowest = 0;
    for (int i = 0; i < c->n_devices; i++) {
        const struct cluster_device *d = &c->devices[i];
        const double speed = d->read[type] > 0 ? d->read[type] : d->bandwidth;
        if (d->host == h && (slowest == 0 || speed < slowest)) {
            slowest = speed;
        }
    }
    return is_together ? slowest * c->hosts[h].together : slowest;
}

// Returns the median of one number over n rounds. list_at: byte offset in struct cluster of the pointer to a list. number_at:
// byte offset of the number in this list.
static double median_at(const struct cluster *rounds, int n, size_t list_at, size_t number_at, bool is_time) {
    double numbers[CLUSTER_ROUNDS];
    for (int r = 0; r < n; r++) {
        const char *list;
        memcpy(&list, (const char *) &rounds[r] + list_at, sizeof list);
        memcpy(&numbers[r], list + number_at, sizeof numbers[r]);
    }
    return cluster_median(numbers, n, is_time);
}

static void device_choose(struct cluster *out, const struct cluster *rounds, int n, int i) {
    struct cluster_device *d = &out->devices[i];
    double *const speeds[] = {&d->bandwidth, &d->flops, &d->attend_read, &d->attend};
    double *const times[] = {&d->start, &d->op};
    const char *list = (const char *) out->devices;
    const size_t at = offsetof(struct cluster, devices);
    for (size_t k = 0; k < sizeof speeds / sizeof speeds[0]; k++) {
        *speeds[k] = median_at(rounds, n, at, (size_t) ((const char *) speeds[k] - list), false);
    }
    for (size_t k = 0; k < sizeof times / sizeof times[0]; k++) {
        *times[k] = median_at(rounds, n, at, (size_t) ((const char *) times[k] - list), true);
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        d->read[t] = median_at(rounds, n, at, (size_t) ((const char *) &d->read[t] - list), false);
        d->product[t] = median_at(rounds, n, at, (size_t) ((const char *) &d->product[t] - list), false);
    }
}

void cluster_choose_rounds(struct cluster *out, const struct cluster *rounds, int n, enum ggml_type type) {
    for (int i = 0; i < out->n_devices; i++) {
        device_choose(out, rounds, n, i);
    }
    for (int l = 0; l < out->n_links; l++) {
        const size_t at = offsetof(struct cluster, links), first = (size_t) l * sizeof out->links[0];
        out->links[l].latency = median_at(rounds, n, at, first + offsetof(struct cluster_link, latency), true);
        out->links[l].bandwidth = median_at(rounds, n, at, first + offsetof(struct cluster_link, bandwidth), false);
    }
    // `together` is a ratio of two speeds. The medians are computed before the ratio, so that a round that is slow for one speed
    // does not affect the other speed.
    for (int h = 0; h < out->n_hosts; h++) {
        double speeds[CLUSTER_ROUNDS];
        for (int r = 0; r < n; r++) {
            speeds[r] = host_speed(&rounds[r], h, type, true);
        }
        const double alone = host_speed(out, h, type, false), all = cluster_median(speeds, n, false);
        const double ratio = alone > 0 && all > 0 ? all / alone : 1;
        out->hosts[h].together = min_f64(max_f64(ratio, CLUSTER_TOGETHER_LEAST), 1);
    }
}
