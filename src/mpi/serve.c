// SPDX-License-Identifier: MIT
// serve.c: a worker from its first word to its last.

#include "mpi/serve.h"

#include "mpi/worker.h"

static void info_fill(struct mpi_device_info *info, ggml_backend_dev_t dev, const struct berth_mpi_serve_params *params) {
    struct ggml_backend_dev_props props;
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    const size_t limit = params->memory_limit > 0 ? params->memory_limit : SIZE_MAX;
    ggml_backend_dev_get_props(dev, &props);
    *info = (struct mpi_device_info){.type = (uint32_t) props.type,
        .is_plain = ggml_backend_buft_is_host(buft),
        .has_cache = params->cache != NULL,
        .memory_free = props.memory_free < limit ? props.memory_free : limit,
        .memory_total = props.memory_total < limit ? props.memory_total : limit,
        .alignment = ggml_backend_buft_get_alignment(buft),
        .max_size = ggml_backend_buft_get_max_size(buft)};
    snprintf(info->name, sizeof info->name, "%s", props.name);
    snprintf(info->description, sizeof info->description, "%s", props.description);
}

struct mpi_device_info *mpi_serve_infos(const struct berth_mpi_serve_params *params) {
    struct mpi_device_info *infos = shim_calloc(params->n_devices + 1, sizeof *infos);
    for (size_t i = 0; infos != NULL && i < params->n_devices; i++) {
        info_fill(&infos[i], params->devices[i], params);
    }
    if (infos == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a list of %zu devices", params->n_devices);
    }
    return infos;
}

bool mpi_serve_world(struct mpi_world *world, const struct berth_mpi_serve_params *params) {
    struct mpi_worker worker;
    if (world->program < 0) {
        int n_lost = 0;
        for (int i = 0; i < world->mail.t.size; i++) {
            n_lost += mpi_mail_is_lost(&world->mail, i);
        }
        shim_error(GGML_STATUS_FAILED, "MPI: there is no program to serve: of %d ranks %d are workers, %d were lost",
            world->mail.t.size, world->mail.t.size - n_lost, n_lost);
        return false;
    }
    if (!mpi_worker_init(&worker, &world->mail, world->program, params)) {
        return false;
    }
    for (struct mpi_mail_item *item; (item = mpi_mail_command(&world->mail, world->program)) != NULL;) {
        mpi_worker_do(&worker, item);
        mpi_item_free(item);
    }
    mpi_worker_fini(&worker);
    if (!mpi_mail_has_left(&world->mail, world->program)) {
        mpi_mail_tell_lost(&world->mail, world->program, "its commands");
        return false;
    }
    return true;
}

bool mpi_serve(const struct berth_mpi_serve_params *params) {
    if (!mpi_process_has_mpirun()) {
        shim_error(GGML_STATUS_FAILED, "MPI: a worker is started by mpirun, beside a program");
        return false;
    }
    struct mpi_device_info *infos = mpi_serve_infos(params);
    struct mpi_world *world = infos != NULL ? mpi_process_world(infos, params->n_devices) : NULL;
    shim_free(infos);
    mpi_process_tell();
    if (world == NULL) {
        return false;
    }
    world->exit_when_alone = true;
    return mpi_serve_world(world, params);
}
