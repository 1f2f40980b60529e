// SPDX-License-Identifier: MIT
// abi.c: the layouts of backends, devices and buffers that others compiled against, checked when Berth is built. No code.

#include "core/abi.h"
#include "ggml-backend-impl.h"

// clang-format off

ABI_SIZE(ggml_backend_dev_caps, 5);
ABI_FIELD(ggml_backend_dev_caps, async, 0, 1);
ABI_FIELD(ggml_backend_dev_caps, host_buffer, 1, 1);
ABI_FIELD(ggml_backend_dev_caps, buffer_from_host_ptr, 2, 1);
ABI_FIELD(ggml_backend_dev_caps, events, 3, 1);
ABI_FIELD(ggml_backend_dev_caps, mmap_support, 4, 1);

ABI_SIZE(ggml_backend_dev_props, 56);
ABI_FIELD(ggml_backend_dev_props, name, 0, 8);
ABI_FIELD(ggml_backend_dev_props, description, 8, 8);
ABI_FIELD(ggml_backend_dev_props, memory_free, 16, 8);
ABI_FIELD(ggml_backend_dev_props, memory_total, 24, 8);
ABI_FIELD(ggml_backend_dev_props, type, 32, 4);
ABI_FIELD(ggml_backend_dev_props, device_id, 40, 8);
ABI_FIELD(ggml_backend_dev_props, caps, 48, 5);

ABI_SIZE(ggml_backend_feature, 16);
ABI_FIELD(ggml_backend_feature, name, 0, 8);
ABI_FIELD(ggml_backend_feature, value, 8, 8);

ABI_SIZE(ggml_backend_meta_split_state, 2128);
ABI_FIELD(ggml_backend_meta_split_state, axis, 0, 4);
ABI_FIELD(ggml_backend_meta_split_state, ne, 8, 2048);
ABI_FIELD(ggml_backend_meta_split_state, nr, 2056, 64);
ABI_FIELD(ggml_backend_meta_split_state, n_segments, 2120, 4);

ABI_SIZE(ggml_backend_graph_copy, 32);
ABI_FIELD(ggml_backend_graph_copy, buffer, 0, 8);
ABI_FIELD(ggml_backend_graph_copy, ctx_allocated, 8, 8);
ABI_FIELD(ggml_backend_graph_copy, ctx_unallocated, 16, 8);
ABI_FIELD(ggml_backend_graph_copy, graph, 24, 8);

ABI_SIZE(ggml_backend_buffer_type_i, 48);
ABI_FIELD(ggml_backend_buffer_type_i, get_name, 0, 8);
ABI_FIELD(ggml_backend_buffer_type_i, alloc_buffer, 8, 8);
ABI_FIELD(ggml_backend_buffer_type_i, get_alignment, 16, 8);
ABI_FIELD(ggml_backend_buffer_type_i, get_max_size, 24, 8);
ABI_FIELD(ggml_backend_buffer_type_i, get_alloc_size, 32, 8);
ABI_FIELD(ggml_backend_buffer_type_i, is_host, 40, 8);

ABI_SIZE(ggml_backend_buffer_type, 64);
ABI_FIELD(ggml_backend_buffer_type, iface, 0, 48);
ABI_FIELD(ggml_backend_buffer_type, device, 48, 8);
ABI_FIELD(ggml_backend_buffer_type, context, 56, 8);

ABI_SIZE(ggml_backend_buffer_i, 88);
ABI_FIELD(ggml_backend_buffer_i, free_buffer, 0, 8);
ABI_FIELD(ggml_backend_buffer_i, get_base, 8, 8);
ABI_FIELD(ggml_backend_buffer_i, init_tensor, 16, 8);
ABI_FIELD(ggml_backend_buffer_i, memset_tensor, 24, 8);
ABI_FIELD(ggml_backend_buffer_i, set_tensor, 32, 8);
ABI_FIELD(ggml_backend_buffer_i, get_tensor, 40, 8);
ABI_FIELD(ggml_backend_buffer_i, set_tensor_2d, 48, 8);
ABI_FIELD(ggml_backend_buffer_i, get_tensor_2d, 56, 8);
ABI_FIELD(ggml_backend_buffer_i, cpy_tensor, 64, 8);
ABI_FIELD(ggml_backend_buffer_i, clear, 72, 8);
ABI_FIELD(ggml_backend_buffer_i, reset, 80, 8);

ABI_SIZE(ggml_backend_buffer, 120);
ABI_FIELD(ggml_backend_buffer, iface, 0, 88);
ABI_FIELD(ggml_backend_buffer, buft, 88, 8);
ABI_FIELD(ggml_backend_buffer, context, 96, 8);
ABI_FIELD(ggml_backend_buffer, size, 104, 8);
ABI_FIELD(ggml_backend_buffer, usage, 112, 4);

ABI_SIZE(ggml_backend_graph_optimize_params, 16);
ABI_FIELD(ggml_backend_graph_optimize_params, add_alloc_dep, 0, 8);
ABI_FIELD(ggml_backend_graph_optimize_params, user_data, 8, 8);

ABI_SIZE(ggml_backend_i, 128);
ABI_FIELD(ggml_backend_i, get_name, 0, 8);
ABI_FIELD(ggml_backend_i, free, 8, 8);
ABI_FIELD(ggml_backend_i, set_tensor_async, 16, 8);
ABI_FIELD(ggml_backend_i, get_tensor_async, 24, 8);
ABI_FIELD(ggml_backend_i, set_tensor_2d_async, 32, 8);
ABI_FIELD(ggml_backend_i, get_tensor_2d_async, 40, 8);
ABI_FIELD(ggml_backend_i, cpy_tensor_async, 48, 8);
ABI_FIELD(ggml_backend_i, synchronize, 56, 8);
ABI_FIELD(ggml_backend_i, graph_plan_create, 64, 8);
ABI_FIELD(ggml_backend_i, graph_plan_free, 72, 8);
ABI_FIELD(ggml_backend_i, graph_plan_update, 80, 8);
ABI_FIELD(ggml_backend_i, graph_plan_compute, 88, 8);
ABI_FIELD(ggml_backend_i, graph_compute, 96, 8);
ABI_FIELD(ggml_backend_i, event_record, 104, 8);
ABI_FIELD(ggml_backend_i, event_wait, 112, 8);
ABI_FIELD(ggml_backend_i, graph_optimize, 120, 8);

ABI_SIZE(ggml_backend, 152);
ABI_FIELD(ggml_backend, guid, 0, 8);
ABI_FIELD(ggml_backend, iface, 8, 128);
ABI_FIELD(ggml_backend, device, 136, 8);
ABI_FIELD(ggml_backend, context, 144, 8);

ABI_SIZE(ggml_backend_event, 16);
ABI_FIELD(ggml_backend_event, device, 0, 8);
ABI_FIELD(ggml_backend_event, context, 8, 8);

ABI_SIZE(ggml_backend_device_i, 120);
ABI_FIELD(ggml_backend_device_i, get_name, 0, 8);
ABI_FIELD(ggml_backend_device_i, get_description, 8, 8);
ABI_FIELD(ggml_backend_device_i, get_memory, 16, 8);
ABI_FIELD(ggml_backend_device_i, get_type, 24, 8);
ABI_FIELD(ggml_backend_device_i, get_props, 32, 8);
ABI_FIELD(ggml_backend_device_i, init_backend, 40, 8);
ABI_FIELD(ggml_backend_device_i, get_buffer_type, 48, 8);
ABI_FIELD(ggml_backend_device_i, get_host_buffer_type, 56, 8);
ABI_FIELD(ggml_backend_device_i, buffer_from_host_ptr, 64, 8);
ABI_FIELD(ggml_backend_device_i, supports_op, 72, 8);
ABI_FIELD(ggml_backend_device_i, supports_buft, 80, 8);
ABI_FIELD(ggml_backend_device_i, offload_op, 88, 8);
ABI_FIELD(ggml_backend_device_i, event_new, 96, 8);
ABI_FIELD(ggml_backend_device_i, event_free, 104, 8);
ABI_FIELD(ggml_backend_device_i, event_synchronize, 112, 8);

ABI_SIZE(ggml_backend_device, 136);
ABI_FIELD(ggml_backend_device, iface, 0, 120);
ABI_FIELD(ggml_backend_device, reg, 120, 8);
ABI_FIELD(ggml_backend_device, context, 128, 8);

ABI_SIZE(ggml_backend_reg_i, 32);
ABI_FIELD(ggml_backend_reg_i, get_name, 0, 8);
ABI_FIELD(ggml_backend_reg_i, get_device_count, 8, 8);
ABI_FIELD(ggml_backend_reg_i, get_device, 16, 8);
ABI_FIELD(ggml_backend_reg_i, get_proc_address, 24, 8);

ABI_SIZE(ggml_backend_reg, 48);
ABI_FIELD(ggml_backend_reg, api_version, 0, 4);
ABI_FIELD(ggml_backend_reg, iface, 8, 32);
ABI_FIELD(ggml_backend_reg, context, 40, 8);

_Static_assert(GGML_BACKEND_BUFFER_USAGE_ANY == 0, "GGML_BACKEND_BUFFER_USAGE_ANY");
_Static_assert(GGML_BACKEND_BUFFER_USAGE_WEIGHTS == 1, "GGML_BACKEND_BUFFER_USAGE_WEIGHTS");
_Static_assert(GGML_BACKEND_BUFFER_USAGE_COMPUTE == 2, "GGML_BACKEND_BUFFER_USAGE_COMPUTE");
_Static_assert(GGML_BACKEND_DEVICE_TYPE_CPU == 0, "GGML_BACKEND_DEVICE_TYPE_CPU");
_Static_assert(GGML_BACKEND_DEVICE_TYPE_GPU == 1, "GGML_BACKEND_DEVICE_TYPE_GPU");
_Static_assert(GGML_BACKEND_DEVICE_TYPE_IGPU == 2, "GGML_BACKEND_DEVICE_TYPE_IGPU");
_Static_assert(GGML_BACKEND_DEVICE_TYPE_ACCEL == 3, "GGML_BACKEND_DEVICE_TYPE_ACCEL");
_Static_assert(GGML_BACKEND_DEVICE_TYPE_META == 4, "GGML_BACKEND_DEVICE_TYPE_META");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_0 == 0, "GGML_BACKEND_SPLIT_AXIS_0");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_1 == 1, "GGML_BACKEND_SPLIT_AXIS_1");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_2 == 2, "GGML_BACKEND_SPLIT_AXIS_2");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_3 == 3, "GGML_BACKEND_SPLIT_AXIS_3");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_MIRRORED == 10, "GGML_BACKEND_SPLIT_AXIS_MIRRORED");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_PARTIAL == 11, "GGML_BACKEND_SPLIT_AXIS_PARTIAL");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_NONE == 98, "GGML_BACKEND_SPLIT_AXIS_NONE");
_Static_assert(GGML_BACKEND_SPLIT_AXIS_UNKNOWN == 99, "GGML_BACKEND_SPLIT_AXIS_UNKNOWN");

// clang-format on
