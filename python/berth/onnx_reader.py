# SPDX-License-Identifier: MIT
"""Reads an ONNX model as items of the planner. Requires the package onnx (Debian: python3-onnx)."""

from __future__ import annotations

import os
from typing import Any, Iterator, Mapping, Union

from ._values import Values
from .planner import PlanInput

Path = Union[str, "os.PathLike[str]"]

# Ops whose first output may share the memory of the first input.
_VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}


def onnx_items(
    model: Path | Any, *, dims: Mapping[str, int] | None = None, align: int = 64, inputs: bool = True
) -> PlanInput:
    """Returns the items of an ONNX model as a PlanInput: the values between its ops. Weights are not included.

    model: a file, or an onnx.ModelProto. dims: the sizes of dimensions that the model only names, such as {"batch": 1}. align: the
    alignment of each value in bytes. inputs: include the inputs of the model.

    An op is a step. A value is alive from the step that computes it to the last step that reads it; outputs of the model are alive
    to the end. Values of Reshape, Flatten, Squeeze, Unsqueeze and Identity share the memory of their source. Memory inside the
    branches of If and Loop is not included.

    >>> berth.plan(berth.onnx_items("model.onnx", dims={"batch": 8}))
    """
    try:
        import onnx  # pylint: disable=import-outside-toplevel
        from onnx import shape_inference  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise ImportError("onnx_items requires the package onnx; Debian's package is python3-onnx") from error
    title = "model.onnx"
    if not isinstance(model, onnx.ModelProto):
        title = os.path.basename(os.fspath(model))
        model = onnx.load(os.fspath(model), load_external_data=False)
    graph = shape_inference.infer_shapes(model).graph
    sizes = _Sizes(graph, dims or {})
    weights = {w.name for w in graph.initializer} | {w.values.name for w in graph.sparse_initializer}
    values = Values(len(graph.node))
    if inputs:
        for value in graph.input:
            if value.name not in weights:
                values.add(value.name, sizes.of(value.name, "the input"), 0, "")
    for step, node in enumerate(graph.node):
        values.use(_reads(node), step)
        for k, name in enumerate(node.output):
            if not name or node.op_type == "Constant":
                continue
            if k == 0 and node.op_type in _VIEWS and node.input[0] not in weights:
                values.add_view(name, node.input[0])
            else:
                values.add(name, sizes.of(name, node.op_type), step, node.op_type)
    return values.finish(title, [value.name for value in graph.output], align)


def _reads(node: Any) -> Iterator[str]:
    """The values that a node reads, also inside its branches."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            for inner in graph.node:
                yield from _reads(inner)
            yield from (value.name for value in graph.output)


class _Sizes:
    """The bytes of values by name."""

    def __init__(self, graph: Any, dims: Mapping[str, int]) -> None:
        self._types = {value.name: value.type for value in [*graph.value_info, *graph.input, *graph.output]}
        self._dims = dims

    def of(self, name: str, op: str) -> int:
        """Returns the bytes of a value; op names what computes it, for messages."""
        from onnx import TensorProto, mapping  # pylint: disable=import-outside-toplevel

        kind = self._types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            raise ValueError(f"value '{name}' of {op} has no known shape; run onnxsim or set the shapes of the inputs first")
        n = 1
        for dim in kind.tensor_type.shape.dim:
            n *= self._extent(name, dim)
        element = kind.tensor_type.elem_type
        if element == TensorProto.STRING:
            raise ValueError(f"value '{name}' of {op} holds texts, whose size is unknown")
        return n * int(mapping.TENSOR_TYPE_TO_NP_TYPE[element].itemsize)

    def _extent(self, name: str, dim: Any) -> int:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        label = dim.dim_param if dim.HasField("dim_param") else ""
        if label not in self._dims:
            hint = f"give it with dims={{'{label}': N}}" if label else "set the shapes of the inputs first"
            raise ValueError(f"value '{name}' has a dimension '{label or '?'}' of unknown size; {hint}")
        return int(self._dims[label])
