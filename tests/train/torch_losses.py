#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch_losses.py MODEL WINDOWS N_SEQ STEPS LR WARMUP: computes the losses of PyTorch for a run of `berth train`.

MODEL is a GGUF file with f32 weights of the llama architecture with a tied output. WINDOWS has the lines that tests/train/windows.c
prints. The script prints one loss per step. Like `berth train`, it uses AdamW with betas 0.9 and 0.95, clips gradients to a norm of 1 and
lowers the learning rate to 0 by a cosine after the warm-up.
"""
import math
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F


def gguf_read(path):
    data = open(path, "rb").read()
    at = 8
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        x = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return x

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take("I"), take("Q")
            return [value(kind) for _ in range(n)]
        return take(sizes[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name, n_dims = text(), take("I")
        shape = [take("Q") for _ in range(n_dims)]
        assert take("I") == 0, "not f32: " + name
        infos.append((name, shape[::-1], take("Q")))
    base = -(-at // 32) * 32
    return keys, {name: torch.from_numpy(np.frombuffer(data, np.float32, math.prod(shape), base + offset).reshape(shape).copy())
                  for name, shape, offset in infos}


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rope(x, cos, sin):  # pairs (2i, 2i + 1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def forward(tokens):
    n_seq, n = tokens.shape
    x = w["token_embd.weight"][tokens]
    mask = torch.full((n, n), -math.inf).triu(1)
    for i in range(n_layer):
        p = lambda name: w[f"blk.{i}.{name}.weight"]
        h = norm(x, p("attn_norm"))
        q = rope((h @ p("attn_q").T).view(n_seq, n, n_head, -1).transpose(1, 2), cos[:n], sin[:n])
        k = rope((h @ p("attn_k").T).view(n_seq, n, n_kv, -1).transpose(1, 2), cos[:n], sin[:n]).repeat_interleave(n_head // n_kv, 1)
        v = (h @ p("attn_v").T).view(n_seq, n, n_kv, -1).transpose(1, 2).repeat_interleave(n_head // n_kv, 1)
        a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask, -1) @ v
        x = x + a.transpose(1, 2).reshape(n_seq, n, -1) @ p("attn_output").T
        h = norm(x, p("ffn_norm"))
        x = x + (F.silu(h @ p("ffn_gate").T) * (h @ p("ffn_up").T)) @ p("ffn_down").T
    return norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


torch.set_num_threads(1)
path, windows, n_seq, steps, lr, warmup = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
keys, w = gguf_read(path)
n_layer, n_head, n_kv = (keys["llama." + x] for x in ("block_count", "attention.head_count", "attention.head_count_kv"))
eps, base, head = keys["llama.attention.layer_norm_rms_epsilon"], keys["llama.rope.freq_base"], keys["llama.embedding_length"] // n_head
for t in w.values():
    t.requires_grad_(True)
angle = torch.arange(4096).float()[:, None] * base ** (-torch.arange(0, head, 2).float() / head)
cos, sin = angle.cos(), angle.sin()
data = torch.tensor([[int(x) for x in line.split()] for line in open(windows)])
opt = torch.optim.AdamW(w.values(), lr=lr, betas=(0.9, 0.95), weight_decay=0)
for step in range(steps):
    rate = lr * (step + 1) / warmup if step < warmup else lr * (0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (steps - warmup)))
    for g in opt.param_groups:
        g["lr"] = rate
    batch = data[step * n_seq:(step + 1) * n_seq]
    z = forward(batch[:, :-1])
    loss = F.cross_entropy(z.reshape(-1, z.shape[-1]), batch[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
    opt.step()
    print(f"{loss.item():.6f}", flush=True)
