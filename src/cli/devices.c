// SPDX-License-Identifier: MIT
// devices.c: `berth devices` lists the devices and their properties. The library of a device is part of the program, or is in the
// program's folder, or is the file that GGML_BACKEND_PATH names.

#include "base/json.h"
#include "cli/help.h"

#include "model/model.h"

#include <inttypes.h>
#include <string.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object"),
    {0},
};

const struct cli_help cli_devices_help = {
    .command = "devices",
    .what = "list the devices and their memory",
    .operands = "",
    .about = "Lists the devices that can run ops, with memory, features, capabilities and buffer types. A device is part of "
             "the program, or comes from a library in the program's folder or from the library that GGML_BACKEND_PATH names.",
    .options = option_rows,
    .size = sizeof(bool),
    .negative = "no device found",
    .examples = {{"List the devices", "devices"}, {"For scripts", "devices --json"}},
};

static const char *type_name(enum ggml_backend_dev_type type) {
    switch (type) {
        case GGML_BACKEND_DEVICE_TYPE_CPU: return "CPU";
        case GGML_BACKEND_DEVICE_TYPE_GPU: return "GPU";
        case GGML_BACKEND_DEVICE_TYPE_IGPU: return "integrated GPU";
        case GGML_BACKEND_DEVICE_TYPE_ACCEL: return "accelerator";
        default: return "unknown";
    }
}

static const struct ggml_backend_feature *features_of(ggml_backend_dev_t dev) {
    static const struct ggml_backend_feature none[] = {{NULL, NULL}};
    ggml_backend_get_features_t get;
    model_device_proc(dev, "ggml_backend_get_features", &get);
    const struct ggml_backend_feature *features = get != NULL ? get(ggml_backend_dev_backend_reg(dev)) : NULL;
    return features != NULL ? features : none;
}

typedef void (*print_buft_t)(struct berth_json_writer *w, ggml_backend_buffer_type_t buft, const char *use, int i);

// Calls print for the default buffer type of the device, its host buffer type and its additional buffer types.
static void each_buft(ggml_backend_dev_t dev, struct berth_json_writer *w, print_buft_t print) {
    int n = 0;
    ggml_backend_buffer_type_t own = ggml_backend_dev_buffer_type(dev);
    ggml_backend_buffer_type_t hosts = ggml_backend_dev_host_buffer_type(dev);
    if (own != NULL) {
        print(w, own, "its own", n++);
    }
    if (hosts != NULL) {
        print(w, hosts, "on the host", n++);
    }
    ggml_backend_dev_get_extra_bufts_t extra;
    model_device_proc(dev, "ggml_backend_dev_get_extra_bufts", &extra);
    for (ggml_backend_buffer_type_t *b = extra != NULL ? extra(dev) : NULL; b != NULL && *b != NULL; b++) {
        print(w, *b, "extra", n++);
    }
}

// ---- as text ----

static void print_buft(struct berth_json_writer *w, ggml_backend_buffer_type_t buft, const char *use, int i) {
    (void) w;
    char text[64];
    const size_t max = ggml_backend_buft_get_max_size(buft);
    printf("  %-12s %s: %s, aligned to %zu, largest buffer %s%s\n", i == 0 ? "buffers" : "", ggml_backend_buft_name(buft), use,
        ggml_backend_buft_get_alignment(buft), max >= SIZE_MAX / 2 ? "unlimited" : cli_bytes(max, text),
        ggml_backend_buft_is_host(buft) ? ", host memory" : "");
}

static void print_device(ggml_backend_dev_t dev) {
    struct ggml_backend_dev_props props;
    char text[64];
    ggml_backend_dev_get_props(dev, &props);
    printf("%s%s%s: %s\n", cli_colour(stdout, CLI_BOLD), props.name, cli_colour(stdout, CLI_RESET), props.description);
    printf("  %-12s %s\n", "type", type_name(props.type));
    if (props.device_id != NULL) {
        printf("  %-12s %s\n", "id", props.device_id);
    }
    printf("  %-12s %s\n", "memory", cli_bytes(props.memory_total, text));
    printf("  %-12s %s\n", "free", cli_bytes(props.memory_free, text));
    printf("  %-12s", "features");
    const struct ggml_backend_feature *f = features_of(dev);
    for (int i = 0; f[i].name != NULL; i++) {
        printf(strcmp(f[i].value, "1") == 0 ? " %s" : " %s=%s", f[i].name, f[i].value);
    }
    puts(f[0].name == NULL ? " none reported" : "");
    const struct ggml_backend_dev_caps *c = &props.caps;
    const char *none = c->async || c->host_buffer || c->buffer_from_host_ptr || c->events ? "" : " none";
    printf("  %-12s%s%s%s%s%s\n", "capabilities", c->async ? " async" : "", c->host_buffer ? " host-buffer" : "",
        c->buffer_from_host_ptr ? " buffer-from-host-pointer" : "", c->events ? " events" : "", none);
    each_buft(dev, NULL, print_buft);
}

// ---- as JSON ----

static void json_buft(struct berth_json_writer *w, ggml_backend_buffer_type_t buft, const char *use, int i) {
    (void) i;
    berth_json_printf(w, "{'name': %s, 'use': %s, 'alignment': %zu, 'max_size': %zu, 'is_host': %c}",
        ggml_backend_buft_name(buft), use, ggml_backend_buft_get_alignment(buft), ggml_backend_buft_get_max_size(buft),
        ggml_backend_buft_is_host(buft));
}

static void json_device(struct berth_json_writer *w, ggml_backend_dev_t dev) {
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'description': %s, 'type': %s, 'id': %s, 'memory_total': %zu, 'memory_free': %zu",
        props.name, props.description, type_name(props.type), props.device_id, props.memory_total, props.memory_free);
    berth_json_begin(w, "features", '{');
    const struct ggml_backend_feature *f = features_of(dev);
    for (int i = 0; f[i].name != NULL; i++) {
        berth_json_printf(w, "%s: %s", f[i].name, f[i].value);
    }
    berth_json_end(w);
    berth_json_printf(w, "'capabilities': {'async': %c, 'host_buffer': %c, 'buffer_from_host_ptr': %c, 'events': %c}",
        props.caps.async, props.caps.host_buffer, props.caps.buffer_from_host_ptr, props.caps.events);
    berth_json_begin(w, "buffers", '[');
    each_buft(dev, w, json_buft);
    berth_json_end(w);
    berth_json_end(w);
}

int cli_devices(const struct cli_args *args) {
    const bool json = *(const bool *) args->options;
    ggml_backend_load_all();
    const size_t n = ggml_backend_dev_count();
    struct berth_json_writer w = {.file = stdout};
    if (json) {
        berth_json_begin(&w, NULL, '{');
        berth_json_begin(&w, "devices", '[');
    }
    for (size_t i = 0; i < n; i++) {
        if (json) {
            if (i > 0) {
                berth_json_line(&w, 2);
            }
            json_device(&w, ggml_backend_dev_get(i));
        } else {
            fputs(i > 0 ? "\n" : "", stdout);
            print_device(ggml_backend_dev_get(i));
        }
    }
    fputs(json ? "]}\n" : "", stdout);
    return n > 0 ? CLI_OK : cli_fail(CLI_NEGATIVE, "no device found");
}
