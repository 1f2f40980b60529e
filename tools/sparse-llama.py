#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sparse-llama.py 70b|405b FILE: writes a sparse model file: a llama model with real dimensions, in q4_K with a q6_K output, whose weights
are a hole in the file. It takes a few KiB on disk. `berth fit` and `berth plan` accept it; its results have no meaning."""
import struct
import sys

SIZES = {  # layers, width, heads, key heads, feed-forward
    "70b": (80, 8192, 64, 8, 28672),
    "405b": (126, 16384, 128, 8, 53248),
}
N_VOCAB = 128256
F32, Q4_K, Q6_K = 0, 12, 14
BLOCK = {F32: (1, 4), Q4_K: (256, 144), Q6_K: (256, 210)}
ALIGN = 32


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def u32(name, value):
    return text(name) + struct.pack("<II", 4, value)


def f32(name, value):
    return text(name) + struct.pack("<If", 6, value)


def tensors(layers, width, heads, heads_kv, ff):
    kv = width // heads * heads_kv
    yield "token_embd.weight", Q4_K, (width, N_VOCAB)
    for i in range(layers):
        for name, rows in (("attn_q", width), ("attn_k", kv), ("attn_v", kv), ("attn_output", width), ("ffn_gate", ff), ("ffn_up", ff)):
            yield f"blk.{i}.{name}.weight", Q4_K, (width, rows)
        yield f"blk.{i}.ffn_down.weight", Q4_K, (ff, width)
        yield f"blk.{i}.attn_norm.weight", F32, (width,)
        yield f"blk.{i}.ffn_norm.weight", F32, (width,)
    yield "output_norm.weight", F32, (width,)
    yield "output.weight", Q6_K, (width, N_VOCAB)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SIZES:
        sys.exit(__doc__)
    layers, width, heads, heads_kv, ff = SIZES[sys.argv[1]]
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
            text("general.name") + struct.pack("<I", 8) + text("llama " + sys.argv[1]),
            u32("llama.context_length", 131072), u32("llama.embedding_length", width), u32("llama.block_count", layers),
            u32("llama.feed_forward_length", ff), u32("llama.attention.head_count", heads),
            u32("llama.attention.head_count_kv", heads_kv), u32("llama.rope.dimension_count", width // heads),
            u32("llama.vocab_size", N_VOCAB), f32("llama.attention.layer_norm_rms_epsilon", 1e-5),
            f32("llama.rope.freq_base", 500000.0)]
    infos, offset = [], 0
    for name, kind, shape in tensors(layers, width, heads, heads_kv, ff):
        infos.append(text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset))
        n = 1
        for x in shape:
            n *= x
        size = n // BLOCK[kind][0] * BLOCK[kind][1]
        offset += (size + ALIGN - 1) // ALIGN * ALIGN
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    head += bytes(-len(head) % ALIGN)
    with open(sys.argv[2], "wb") as file:
        file.write(head)
        file.truncate(len(head) + offset)


main()
