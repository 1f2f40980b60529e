# SPDX-License-Identifier: MIT
"""Reads a TensorFlow Lite file as items of the planner. The reader of FlatBuffers is this file's own, and it accepts any bytes."""

from __future__ import annotations

import os
import struct
from typing import Union

from ._values import Values
from .planner import PlanInput

Path = Union[str, "os.PathLike[str]"]

# Bits of an element, by TensorType. Types without an entry (texts, resources) have no fixed size.
_BITS = {0: 32, 1: 16, 2: 32, 3: 8, 4: 64, 6: 8, 7: 16, 8: 64, 9: 8, 10: 64, 11: 128, 12: 64, 15: 32, 16: 16, 17: 4, 18: 16}

_OPS = (
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED "
    "HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU "
    "RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM "
    "EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE"
).split()
_VIEWS = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS"}


class _Table:
    """A table of a FlatBuffer. Field i is at the offset in entry i of the table's vtable; 0: the field is absent."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - self._number("<i", at)
        self._vtable_size = self._number("<H", self._vtable)

    def _number(self, kind: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(kind) > len(self._data):
            raise ValueError(f"offset {at} is outside the file of {len(self._data)} bytes")
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _field(self, i: int) -> int:
        """Where field i is; 0: absent."""
        entry = 4 + 2 * i
        offset = self._number("<H", self._vtable + entry) if entry + 2 <= self._vtable_size else 0
        return self._at + offset if offset else 0

    def number(self, i: int, kind: str, default: int = 0) -> int:
        """A number in field i."""
        at = self._field(i)
        return self._number(kind, at) if at else default

    def _vector(self, i: int, size: int) -> tuple[int, int]:
        """Where the vector in field i begins, and its length. size: bytes of an element."""
        at = self._field(i)
        if not at:
            return 0, 0
        start = at + self._number("<I", at)
        n = self._number("<I", start)
        if start + 4 + n * size > len(self._data):
            raise ValueError(f"a vector of {n} elements at offset {start} ends outside the file of {len(self._data)} bytes")
        return start + 4, n

    def numbers(self, i: int) -> list[int]:
        """A vector of int32."""
        at, n = self._vector(i, 4)
        return list(struct.unpack_from(f"<{n}i", self._data, at)) if n else []

    def text(self, i: int) -> str:
        """A text."""
        at, n = self._vector(i, 1)
        return self._data[at : at + n].decode("utf-8", "replace")

    def has_bytes(self, i: int) -> bool:
        """Whether a vector of bytes has elements."""
        return self._vector(i, 1)[1] > 0

    def tables(self, i: int) -> list[_Table]:
        """A vector of tables."""
        at, n = self._vector(i, 4)
        return [_Table(self._data, at + 4 * k + self._number("<I", at + 4 * k)) for k in range(n)]


def tflite_items(model: Path | bytes, *, subgraph: int = 0, align: int = 16, inputs: bool = True) -> PlanInput:
    """Returns the items of a TensorFlow Lite model as a PlanInput: the tensors between its ops. Weights are not included.

    model: a file, or its bytes. subgraph: the subgraph to read. align: the alignment of each tensor in bytes. inputs: include the
    inputs of the model.

    An op is a step. A tensor is alive from the step that computes it to the last step that reads it; outputs of the model and
    variables are alive to the end. RESHAPE, SQUEEZE and EXPAND_DIMS share the memory of their source.

    >>> berth.plan(berth.tflite_items("model.tflite"))
    """
    title = "model.tflite"
    if isinstance(model, bytes):
        data = model
    else:
        title = os.path.basename(os.fspath(model))
        with open(model, "rb") as file:
            data = file.read()
    if data[4:8] != b"TFL3":
        raise ValueError(f"{title}: not a TensorFlow Lite file: bytes 4 to 7 are {data[4:8]!r} instead of b'TFL3'")
    try:
        root = _Table(data, struct.unpack_from("<I", data)[0])
        subgraphs = root.tables(2)
        if not 0 <= subgraph < len(subgraphs):
            raise ValueError(f"there is no subgraph {subgraph}: the file has {len(subgraphs)}")
        return _subgraph_items(root, subgraphs[subgraph], title, align, inputs)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


def _op_names(root: _Table) -> list[str]:
    names = []
    for code in root.tables(1):
        number = max(code.number(0, "<b"), code.number(3, "<i"))
        name = _OPS[number] if 0 <= number < len(_OPS) else {70: "EXPAND_DIMS"}.get(number, f"OP_{number}")
        names.append(code.text(1) or name if name == "CUSTOM" else name)
    return names


def _tensor_size(tensor: _Table, name: str) -> int:
    bits = _BITS.get(tensor.number(1, "<b"))
    if bits is None:
        raise ValueError(f"tensor '{name}' has type {tensor.number(1, '<b')}, whose size is unknown")
    n = 1
    for extent in tensor.numbers(0):
        if extent < 0:
            raise ValueError(f"tensor '{name}' has an extent of {extent}; convert the model with fixed shapes")
        n *= extent
    return (n * bits + 7) // 8


def _subgraph_items(root: _Table, graph: _Table, title: str, align: int, inputs: bool) -> PlanInput:
    tensors, operators, ops = graph.tables(0), graph.tables(3), _op_names(root)
    is_weight = [buffer.has_bytes(0) for buffer in root.tables(4)]
    keys = [f"{i}" for i in range(len(tensors))]  # names may be equal, indices are not
    names = [tensor.text(3) or f"tensor {i}" for i, tensor in enumerate(tensors)]
    values = Values(len(operators))
    labels: dict[str, str] = {}

    def key(i: int) -> str:
        if not 0 <= i < len(tensors):
            raise ValueError(f"there is no tensor {i}: the subgraph has {len(tensors)}")
        return keys[i]

    def is_constant(i: int) -> bool:
        buffer = tensors[i].number(2, "<I")
        return buffer < len(is_weight) and is_weight[buffer]

    def add(i: int, step: int, op: str) -> None:
        labels[key(i)] = names[i]
        values.add(keys[i], _tensor_size(tensors[i], names[i]), step, op)

    variables = [i for i, tensor in enumerate(tensors) if tensor.number(5, "<b")]
    for i in [*(graph.numbers(1) if inputs else []), *variables]:
        key(i)
        if not is_constant(i):
            add(i, 0, "")
    for step, operator in enumerate(operators):
        index = operator.number(0, "<I")
        if index >= len(ops):
            raise ValueError(f"there is no operator code {index}: the file has {len(ops)}")
        sources = [i for i in operator.numbers(1) if i >= 0]  # -1: an optional input that is absent
        values.use([key(i) for i in sources], step)
        for k, i in enumerate(operator.numbers(2)):
            if k == 0 and ops[index] in _VIEWS and sources and not is_constant(sources[0]):
                values.add_view(key(i), key(sources[0]))
            elif key(i) not in labels:
                add(i, step, ops[index])
    ends = [key(i) for i in [*graph.numbers(2), *variables]]
    out = values.finish(title, ends, align)
    out.names = [labels[name] for name in out.names]
    return out
