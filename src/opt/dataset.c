// SPDX-License-Identifier: MIT
// dataset.c: data sets in host memory. A shard is a group of ndata_shard data that stay together when the order is shuffled.

#include "core/op.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "opt/opt.h"

ggml_opt_dataset_t ggml_opt_dataset_init(enum ggml_type type_data, enum ggml_type type_label, int64_t ne_datapoint,
    int64_t ne_label, int64_t ndata, int64_t ndata_shard) {
    if (ne_datapoint <= 0 || ne_label < 0 || ndata <= 0 || ndata_shard <= 0) {
        berth_fail(GGML_STATUS_FAILED,
            "%s: %lld values per datum, %lld per label, %lld data in shards of %lld: only the values per label may be 0",
            __func__, (long long) ne_datapoint, (long long) ne_label, (long long) ndata, (long long) ndata_shard);
        return NULL;
    }
    struct ggml_opt_dataset *d = berth_calloc(1, sizeof *d);
    if (d == NULL) {
        return NULL;
    }
    d->ndata = ndata;
    d->ndata_shard = ndata_shard;
    d->n_shards = ndata / ndata_shard;
    d->ctx = ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    d->data = ggml_new_tensor_2d(d->ctx, type_data, ne_datapoint, ndata);
    d->labels = ne_label > 0 ? ggml_new_tensor_2d(d->ctx, type_label, ne_label, ndata) : NULL;
    d->order = berth_calloc((size_t) d->n_shards + 1, sizeof d->order[0]);
    if (d->ctx == NULL || d->order == NULL || d->data == NULL || berth_poisoned(d->data) ||
        (d->labels != NULL && berth_poisoned(d->labels))) {
        ggml_opt_dataset_free(d);
        return NULL;
    }
    d->buffer = ggml_backend_alloc_ctx_tensors_from_buft(d->ctx, ggml_backend_cpu_buffer_type());
    if (d->buffer == NULL) {
        ggml_opt_dataset_free(d);
        return NULL;
    }
    d->data_size = ggml_nbytes(d->data) / (size_t) ndata * (size_t) ndata_shard;
    d->labels_size = d->labels != NULL ? ggml_nbytes(d->labels) / (size_t) ndata * (size_t) ndata_shard : 0;
    for (int64_t i = 0; i < d->n_shards; i++) {
        d->order[i] = i;
    }
    return d;
}

void ggml_opt_dataset_free(ggml_opt_dataset_t dataset) {
    if (dataset == NULL) {
        return;
    }
    ggml_backend_buffer_free(dataset->buffer);
    ggml_free(dataset->ctx);
    berth_free(dataset->order);
    berth_free(dataset);
}

int64_t ggml_opt_dataset_ndata(ggml_opt_dataset_t dataset) {
    return dataset != NULL ? dataset->ndata : 0;
}

struct ggml_tensor *ggml_opt_dataset_data(ggml_opt_dataset_t dataset) {
    return dataset != NULL ? dataset->data : NULL;
}

struct ggml_tensor *ggml_opt_dataset_labels(ggml_opt_dataset_t dataset) {
    return dataset != NULL ? dataset->labels : NULL;
}

// idata negative: all data.
void ggml_opt_dataset_shuffle(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, int64_t idata) {
    if (opt_ctx == NULL || dataset == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the %s is NULL", __func__, opt_ctx == NULL ? "context" : "data set");
        return;
    }
    if (idata > dataset->ndata || (idata >= 0 && idata % dataset->ndata_shard != 0)) {
        berth_fail(GGML_STATUS_FAILED, "%s: the first %lld of %lld data are not a multiple of the shard size %lld", __func__,
            (long long) idata, (long long) dataset->ndata, (long long) dataset->ndata_shard);
        return;
    }
    opt_shuffle(&opt_ctx->rng, dataset->order, idata < 0 ? dataset->n_shards : idata / dataset->ndata_shard);
}

// ---- batches ----

// Returns the number of shards in a batch of `size` bytes. 0: there is no batch ibatch of this size; the error is set.
static int64_t shards_of(const char *func, const struct ggml_opt_dataset *d, size_t size, bool has_labels, int64_t ibatch) {
    if (d == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the data set is NULL", func);
        return 0;
    }
    if (has_labels != (d->labels != NULL)) {
        berth_fail(GGML_STATUS_FAILED, "%s: the data set has %s labels, the batch has %s", func, d->labels != NULL ? "" : "no",
            has_labels ? "some" : "none");
        return 0;
    }
    const int64_t n = (int64_t) (size / d->data_size);
    if (n == 0 || size % d->data_size != 0 || ibatch < 0 || ibatch >= d->n_shards / n) {
        berth_fail(GGML_STATUS_FAILED, "%s: there is no batch %lld of %zu bytes: the data set has %lld shards of %zu bytes", func,
            (long long) ibatch, size, (long long) d->n_shards, d->data_size);
        return 0;
    }
    return n;
}

static const char *shard_at(const struct ggml_tensor *t, size_t size, int64_t i) {
    return (const char *) t->data + (size_t) i * size;
}

void ggml_opt_dataset_get_batch(
    ggml_opt_dataset_t dataset, struct ggml_tensor *data_batch, struct ggml_tensor *labels_batch, int64_t ibatch) {
    if (data_batch == NULL || !ggml_is_contiguous(data_batch) || (labels_batch != NULL && !ggml_is_contiguous(labels_batch))) {
        berth_fail(GGML_STATUS_FAILED, "%s: the batch is NULL or not contiguous", __func__);
        return;
    }
    const int64_t n = shards_of(__func__, dataset, ggml_nbytes(data_batch), labels_batch != NULL, ibatch);
    if (n == 0) {
        return;
    }
    if (data_batch->type != dataset->data->type ||
        (labels_batch != NULL &&
            (labels_batch->type != dataset->labels->type || ggml_nbytes(labels_batch) != (size_t) n * dataset->labels_size))) {
        berth_fail(GGML_STATUS_FAILED,
            "%s: the batch has other types than the data set, or its labels have %zu bytes instead of %zu", __func__,
            labels_batch != NULL ? ggml_nbytes(labels_batch) : 0, (size_t) n * dataset->labels_size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t shard = dataset->order[ibatch * n + i];
        ggml_backend_tensor_set(
            data_batch, shard_at(dataset->data, dataset->data_size, shard), (size_t) i * dataset->data_size, dataset->data_size);
        if (labels_batch != NULL) {
            ggml_backend_tensor_set(labels_batch, shard_at(dataset->labels, dataset->labels_size, shard),
                (size_t) i * dataset->labels_size, dataset->labels_size);
        }
    }
}

void ggml_opt_dataset_get_batch_host(
    ggml_opt_dataset_t dataset, void *data_batch, size_t nb_data_batch, void *labels_batch, int64_t ibatch) {
    const int64_t n = data_batch != NULL ? shards_of(__func__, dataset, nb_data_batch, labels_batch != NULL, ibatch) : 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t shard = dataset->order[ibatch * n + i];
        memcpy((char *) data_batch + (size_t) i * dataset->data_size, shard_at(dataset->data, dataset->data_size, shard),
            dataset->data_size);
        if (labels_batch != NULL) {
            memcpy((char *) labels_batch + (size_t) i * dataset->labels_size,
                shard_at(dataset->labels, dataset->labels_size, shard), dataset->labels_size);
        }
    }
}
