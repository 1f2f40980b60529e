// SPDX-License-Identifier: MIT
// reduce.glsl: sums and maxima over a workgroup of one dimension. All threads must call, and all receive the result. The order of
// the additions is fixed.

shared float reduce_all_parts[1024];
shared float reduce_parts_32[32];

float block_sum(float v) {
    const uint n = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
    barrier(); // another thread may still read an earlier result
    reduce_all_parts[t] = v;
    barrier();
    if (t < 32u) {
        float s = 0.0;
        for (uint i = t; i < n; i += 32u) {
            s += reduce_all_parts[i];
        }
        reduce_parts_32[t] = s;
    }
    barrier();
    float s = 0.0;
    for (uint i = 0u; i < min(n, 32u); i++) {
        s += reduce_parts_32[i];
    }
    return s;
}

float block_max(float v) {
    const uint n = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
    barrier();
    reduce_all_parts[t] = v;
    barrier();
    if (t < 32u) {
        float s = reduce_all_parts[t < n ? t : 0u];
        for (uint i = t; i < n; i += 32u) {
            s = max_of(s, reduce_all_parts[i]);
        }
        reduce_parts_32[t] = s;
    }
    barrier();
    float s = reduce_parts_32[0];
    for (uint i = 1u; i < min(n, 32u); i++) {
        s = max_of(s, reduce_parts_32[i]);
    }
    return s;
}
