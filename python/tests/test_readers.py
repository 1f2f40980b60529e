# SPDX-License-Identifier: MIT
"""Tests the readers of ONNX and TensorFlow Lite on small models that the tests build."""

import struct

import pytest

import berth

# ---- a writer of FlatBuffers, for tests ----


class Field:
    """A value of a table: a number with its struct format, or an object that follows the table."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value


def flat(value, out):
    """Appends an object to the bytes and returns where it begins. A dict is a table {field: Field}, a list a vector."""
    if isinstance(value, dict):
        return flat_table(value, out)
    if isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        at = len(out)
        out += struct.pack("<I", len(data)) + data + b"\0"
        out += b"\0" * (-len(out) % 4)
        return at
    at = len(out)
    if value and not isinstance(value[0], int):
        out += struct.pack("<I", len(value)) + b"\0" * 4 * len(value)
        for i, each in enumerate(value):
            place = at + 4 + 4 * i
            struct.pack_into("<I", out, place, flat(each, out) - place)
    else:
        out += struct.pack(f"<I{len(value)}i", len(value), *value)
    return at


def flat_table(fields, out):
    n = max(fields, default=-1) + 1
    sizes = {i: 4 if f.kind == "ref" else struct.calcsize(f.kind) for i, f in fields.items()}
    offsets, size = {}, 4
    for i in sorted(fields):
        size += -size % sizes[i]
        offsets[i] = size
        size += sizes[i]
    out += struct.pack("<HH", 4 + 2 * n, size) + b"".join(struct.pack("<H", offsets.get(i, 0)) for i in range(n))
    out += b"\0" * (-len(out) % 4)
    vtable = len(out) - (4 + 2 * n) - (-(4 + 2 * n) % 4)
    at = len(out)
    out += struct.pack("<i", at - vtable) + b"\0" * (size - 4)
    out += b"\0" * (-len(out) % 4)
    for i, field in fields.items():
        if field.kind != "ref":
            struct.pack_into(field.kind, out, at + offsets[i], field.value)
        else:
            place = at + offsets[i]
            struct.pack_into("<I", out, place, flat(field.value, out) - place)
    return at


def ref(value):
    return Field("ref", value)


def tensor(shape, name, type_=0, buffer=0):
    return {0: ref(list(shape)), 1: Field("<b", type_), 2: Field("<I", buffer), 3: ref(name)}


def operator(code, inputs, outputs):
    return {0: Field("<I", code), 1: ref(list(inputs)), 2: ref(list(outputs))}


def tflite(tensors, operators, inputs=(0,), outputs=(4,)):
    out = bytearray(b"\0\0\0\0TFL3")
    codes = [{0: Field("<b", 3), 3: Field("<i", 3)}, {0: Field("<b", 22), 3: Field("<i", 22)}, {0: Field("<b", 25)}]
    graph = {0: ref(tensors), 1: ref(list(inputs)), 2: ref(list(outputs)), 3: ref(operators)}
    root = {0: Field("<I", 3), 1: ref(codes), 2: ref([graph]), 4: ref([{}, {0: ref(b"weights!")}])}
    struct.pack_into("<I", out, 0, flat(root, out))
    return bytes(out)


def tflite_sample():
    """image -> CONV_2D with weights -> RESHAPE -> CONV_2D (int8) -> SOFTMAX"""
    tensors = [
        tensor((1, 8, 8, 3), "image"), tensor((4, 3, 3, 3), "weights", buffer=1), tensor((1, 8, 8, 4), "conv"),
        tensor((1, 256), "flat"), tensor((1, 10), "probabilities"), tensor((1, 16), "dense", type_=9),
    ]  # fmt: skip
    return tflite(tensors, [operator(0, (0, 1, -1), (2,)), operator(1, (2,), (3,)), operator(0, (3,), (5,)), operator(2, (5,), (4,))])


def test_tflite(tmp_path):
    path = tmp_path / "small.tflite"
    path.write_bytes(tflite_sample())
    read = berth.tflite_items(path)
    assert read.names == ["image", "conv", "dense", "probabilities"] and read.title == "small.tflite"
    assert list(read.items["size"]) == [8 * 8 * 3 * 4, 8 * 8 * 4 * 4, 16, 40]
    assert list(zip(read.items["first"], read.items["last"])) == [(0, 0), (0, 2), (2, 3), (3, 3)]
    assert read.ops == ["", "CONV_2D", "CONV_2D", "SOFTMAX"]
    plan = berth.plan(read)
    assert plan.peak == 768 + 1024 and plan.proven and "small.tflite" in plan.svg()
    assert berth.tflite_items(path.read_bytes(), inputs=False).names == ["conv", "dense", "probabilities"]


def test_tflite_refused():
    data = tflite_sample()
    with pytest.raises(ValueError, match="not a TensorFlow Lite file"):
        berth.tflite_items(b"GGUF and more")
    with pytest.raises(ValueError, match="there is no subgraph 1: the file has 1"):
        berth.tflite_items(data, subgraph=1)
    with pytest.raises(ValueError, match="extent of -1"):
        berth.tflite_items(tflite([tensor((-1, 8), "x")], [], outputs=(0,)))
    with pytest.raises(ValueError, match="type 5, whose size is unknown"):
        berth.tflite_items(tflite([tensor((1, 8), "x", type_=5)], [], outputs=(0,)))
    with pytest.raises(ValueError, match="there is no tensor 9"):
        berth.tflite_items(tflite([tensor((1, 8), "x")], [operator(0, (9,), (0,))], outputs=(0,)))


def test_tflite_any_bytes():
    """A changed or shortened file is read, or refused with ValueError."""
    data = tflite_sample()
    n_refused = 0
    for i in range(len(data)):
        for changed in (data[:i], data[:i] + bytes([data[i] ^ 0x81]) + data[i + 1 :]):
            try:
                berth.tflite_items(changed)
            except (ValueError, berth.BerthError):
                n_refused += 1
    assert n_refused > len(data)


# ---- ONNX ----


def onnx_sample(batch):
    onnx = pytest.importorskip("onnx", reason="python3-onnx is not installed")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]), helper.make_node("Add", ["c", "a"], ["y"]),
    ]  # fmt: skip
    weights = [
        helper.make_tensor("w", kind, [8, 16], [0.0] * 128),
        helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [-1, 16]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [batch, 8])],
        [helper.make_tensor_value_info("y", kind, [batch, 16])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


def test_onnx(tmp_path):
    model = onnx_sample(4)
    read = berth.onnx_items(model)
    assert read.names == ["x", "a", "b", "y"]
    assert list(read.items["size"]) == [4 * 8 * 4, 256, 256, 256]
    assert list(zip(read.items["first"], read.items["last"])) == [(0, 0), (0, 3), (1, 3), (3, 3)]
    assert berth.plan(read).peak == 3 * 256 and read.ops == ["", "MatMul", "Relu", "Add"]
    (tmp_path / "small.onnx").write_bytes(model.SerializeToString())
    assert berth.onnx_items(tmp_path / "small.onnx").title == "small.onnx"
    assert berth.onnx_items(model, inputs=False).names == ["a", "b", "y"]


def test_onnx_dims():
    model = onnx_sample("batch")
    with pytest.raises(ValueError, match=r"dims=\{'batch': N\}"):
        berth.onnx_items(model)
    assert list(berth.onnx_items(model, dims={"batch": 2}).items["size"]) == [64, 128, 128, 128]
