# SPDX-License-Identifier: MIT
"""Tests graphs: ops against numpy, memory without copies, plans, errors, and Ctrl-C."""

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

import berth


@pytest.fixture(scope="module")
def cpu():
    return berth.Backend("CPU", threads=1)


def test_values_without_copies(cpu):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    ctx = berth.Context()
    ta, tb = ctx.from_numpy(a, "a"), ctx.from_numpy(b, "b")
    assert np.shares_memory(ta.numpy(), a) and ta.shape == (4, 3) and ta.name == "a"
    graph = ctx.graph(ctx.mul_mat(ta, tb))
    plan = cpu.plan(graph)
    assert plan.peak >= plan.bound > 0
    cpu.compute(graph)
    out = graph.outputs[0].numpy()
    assert out.shape == (5, 4) and np.allclose(out, b @ a.T, atol=1e-5)
    a *= 2  # the graph reads the array itself
    cpu.compute(graph)
    assert np.allclose(out, b @ a.T, atol=1e-5)
    assert np.array_equal(graph.outputs[0].get(), out)
    out[...] = 0
    assert (graph.outputs[0].get() == 0).all()


@pytest.mark.parametrize(
    "op, function",
    [
        ("sqr", np.square), ("exp", np.exp), ("neg", np.negative), ("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0)),
        ("abs", np.abs), ("sgn", np.sign), ("sum", lambda x: x.sum()), ("transpose", None),
        ("soft_max", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    ],
)  # fmt: skip
def test_ops(cpu, op, function):
    x = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)
    ctx = berth.Context()
    out = ctx.op(op, ctx.from_numpy(x))
    if function is None:
        assert out.shape == (8, 3)
        out, function = ctx.cont(out), np.transpose
    graph = ctx.graph(out)
    cpu.compute(graph)
    assert np.allclose(graph.outputs[0].numpy(), function(x), atol=1e-5)


def test_operators_and_allocated_tensors(cpu):
    ctx = berth.Context()
    a, b = ctx.new_tensor((2, 4), name="a"), ctx.new_tensor((2, 4))
    q = ctx.new_tensor((4, 64), type="q8_0")
    with pytest.raises(berth.BerthError, match="'a' has no memory"):
        a.get()
    assert ctx.allocate(cpu) >= 64
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    a.set(values)
    b.set(values + 1)
    q.set(np.ones((4, 64), np.float32))
    assert np.allclose(q.get(), 1, atol=0.01)
    with pytest.raises(berth.BerthError, match="numpy has no type q8_0"):
        q.numpy()
    with pytest.raises(ValueError, match="has the shape"):
        a.set(np.zeros(3, np.float32))
    graph = ctx.graph((a + b) * a / b - a)
    cpu.compute(graph)
    assert np.allclose(graph.outputs[0].numpy(), (2 * values + 1) * values / (values + 1) - values, atol=1e-5)
    assert [node.op for node in graph.nodes] == ["ADD", "MUL", "DIV", "SUB"] and len(graph) == 4


def test_arrays_stay_alive(cpu):
    ctx = berth.Context()
    tensor = ctx.from_numpy(np.full(1000, 3, np.float32))
    out = ctx.graph(ctx.sum(tensor))
    cpu.compute(out)
    result = out.outputs[0].numpy()
    del ctx, tensor, out
    gc.collect()
    assert result[0] == 3000


def test_errors(cpu):
    ctx = berth.Context(n_tensors=8)
    a = ctx.from_numpy(np.zeros((2, 3), np.float32))
    with pytest.raises(berth.BerthError, match=r"ggml_mul_mat: a \[3, 2, 1, 1\]"):
        ctx.mul_mat(a, ctx.new_tensor((7, 9)))
    with pytest.raises(ValueError, match="unknown op 'fly'"):
        ctx.op("fly", a)
    with pytest.raises(AttributeError):
        ctx.fly(a)
    with pytest.raises(TypeError, match="add takes 2 arguments, but 1 are given"):
        ctx.add(a)
    with pytest.raises(ValueError, match="not contiguous"):
        ctx.from_numpy(np.zeros((4, 4), np.float32)[:, ::2])
    with pytest.raises(berth.BerthError, match="there is no device 'moon'"):
        berth.Backend("moon")
    with pytest.raises(berth.BerthError):
        for _ in range(100):
            a = ctx.neg(a)
    assert any(name == "CPU" and free > 0 for name, _, free in berth.devices())


def test_interrupt(cpu):
    ctx = berth.Context(n_tensors=4096)
    x = ctx.from_numpy(np.random.default_rng(3).normal(size=(512, 512)).astype(np.float32))
    y = x
    for _ in range(2000):
        y = ctx.scale(ctx.mul_mat(x, y), 0.001)
    graph = ctx.graph(y)
    cpu.plan(graph)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        cpu.compute(graph)
    assert time.monotonic() - start < 10
    small = ctx.graph(ctx.sum(x))
    cpu.compute(small)  # the backend works after the interrupt
    assert np.isfinite(small.outputs[0].numpy()[0])
