// SPDX-License-Identifier: MIT
// pair.glsl: sums with about 48 bits, as pairs of floats (x: the sum, y: what rounding lost), because some devices lack doubles.
// If the sum is not finite, only x counts.
vec2 pair_add(vec2 a, float b) {
    precise float s = a.x + b;
    precise float back = s - a.x;
    precise float rest_a = a.x - (s - back);
    precise float rest_b = b - back;
    precise float low = a.y + (rest_a + rest_b);
    return vec2(s, low);
}
vec2 pair_sum(vec2 a, vec2 b) {
    const vec2 s = pair_add(a, b.x);
    precise float low = s.y + b.y;
    return vec2(s.x, low);
}
float pair_value(vec2 a) {
    return is_finite(a.x) ? a.x + a.y : a.x;
}
// Adds a product with its rounding error.
vec2 pair_add_product(vec2 a, float b, float c) {
    precise float p = b * c;
    const float rest = product_error(b, c);
    const vec2 s = pair_add(a, p);
    precise float low = s.y + (is_finite(rest) ? rest : 0.0);
    return vec2(s.x, low);
}

shared vec2 pair_parts[1024];
shared vec2 pair_parts_32[32];

// All threads of the workgroup must call, and all receive the result.
vec2 block_pair_sum(vec2 v) {
    const uint n = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
    barrier();
    pair_parts[t] = v;
    barrier();
    if (t < 32u) {
        vec2 s = vec2(0.0);
        for (uint i = t; i < n; i += 32u) {
            s = pair_sum(s, pair_parts[i]);
        }
        pair_parts_32[t] = s;
    }
    barrier();
    vec2 s = vec2(0.0);
    for (uint i = 0u; i < min(n, 32u); i++) {
        s = pair_sum(s, pair_parts_32[i]);
    }
    return s;
}
