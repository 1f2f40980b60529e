// SPDX-License-Identifier: MIT
// worker.c: `berth worker`: serves this machine's devices to the program that mpirun started together with the worker (src/mpi).

#include "cli/help.h"

#include "berth-mpi.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct flags {
    struct berth_mpi_serve_params params;
    const char *device;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION('t', "threads", "N", "CPU threads (default: number of cores)", CLI_RANGE(1, 4096),
        CLI_TO(struct flags, params.n_threads)),
    CLI_OPTION('d', "device", "NAME", "serve only this device (default: all)", .takes = "@devices", CLI_TO(struct flags, device)),
    CLI_OPTION(0, "memory", "SIZE", "memory limit per device in bytes (default: all)", .kind = CLI_SIZE,
        CLI_TO(struct flags, params.memory_limit)),
    CLI_OPTION(0, "cache", "DIR", "keep received weights in this existing folder, so that they are sent only once",
        CLI_TO(struct flags, params.cache)),
    {0},
};

const struct cli_help cli_worker_help = {
    .command = "worker",
    .what = "serve this machine's devices to a program on another machine",
    .operands = "",
    .about = "Serves the devices of this machine to a program that mpirun starts with it. The program lists them as MPI1:CPU, "
             "MPI2:CUDA0 and so on; any ggml program can use them. The worker ends with the program.\n"
             "A model on two machines (see docs/user/cluster.md):\n"
             "  mpirun --host here,there -n 1 berth run FILE : -n 1 berth worker",
    .options = option_rows,
    .size = sizeof(struct flags),
    .examples = {{"Serve all devices", "worker"}, {"Two threads and 8 GiB per device", "worker -t 2 --memory 8GiB"}},
};

// Sets the list of devices to serve. Devices of type ACCEL are left out, because they only speed up the CPU. False: out of
// memory.
static bool devices_list(struct flags *f) {
    const size_t n = ggml_backend_dev_count();
    f->params.devices = berth_calloc(n + 1, sizeof *f->params.devices);
    for (size_t i = 0; f->params.devices != NULL && i < n; i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_ACCEL &&
            (f->device == NULL || strcmp(f->device, ggml_backend_dev_name(dev)) == 0)) {
            f->params.devices[f->params.n_devices++] = dev;
        }
    }
    return f->params.devices != NULL;
}

int cli_worker(const struct cli_args *args) {
    struct flags *f = args->options;
    struct stat at;
    if (f->params.cache != NULL && (stat(f->params.cache, &at) != 0 || !S_ISDIR(at.st_mode))) {
        return cli_fail(CLI_FAILURE, "%s: not a folder", f->params.cache);
    }
    setenv("BERTH_MPI_ROLE", "worker", 1);
    ggml_backend_load_all();
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("MPI");
    berth_mpi_serve_t serve = NULL;
    void *p = reg != NULL ? ggml_backend_reg_get_proc_address(reg, "berth_mpi_serve") : NULL;
    memcpy(&serve, &p, sizeof serve);
    if (serve == NULL) {
        return cli_fail(CLI_FAILURE, "this build has no MPI: run 'make setup-mpi' and build again");
    }
    if (!devices_list(f)) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    int code;
    if (f->params.n_devices == 0) {
        struct model_error error = {""};
        model_device_unknown(f->device != NULL ? f->device : "", &error);
        code = cli_fail(CLI_FAILURE, "%s", error.text);
    } else {
        code = serve(&f->params) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    berth_free(f->params.devices);
    return code;
}
