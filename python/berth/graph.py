# SPDX-License-Identifier: MIT
"""Tensor graphs: build, plan and compute them. Extents are in numpy's order: the last one is the length of a row.

>>> cpu = berth.Backend()
>>> ctx = berth.Context()
>>> a = ctx.from_numpy(np.ones((4, 3), np.float32))
>>> b = ctx.from_numpy(np.ones((5, 3), np.float32))
>>> graph = ctx.graph(ctx.mul_mat(a, b))
>>> cpu.compute(graph)
>>> graph.outputs[0].numpy()
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from . import _cdef
from ._library import BerthError, Flag, check, ffi, last_error, lib, not_null, run_long, text_of
from .gguf import numpy_type, type_name, type_number, type_of_numpy, view
from .planner import Plan

Array = npt.NDArray[Any]


class Tensor:
    """A tensor of a context."""

    def __init__(self, ctx: Context, c: Any) -> None:
        self.ctx = ctx
        """the context that owns the tensor"""
        self.c = c
        """the struct ggml_tensor, as cffi's object"""
        self.memory: Any = None

    @property
    def name(self) -> str:
        """The name."""
        return text_of(ffi.cast("char *", ffi.addressof(self.c, "name")))

    @name.setter
    def name(self, text: str) -> None:
        lib.ggml_set_name(self.c, text.encode())

    @property
    def type(self) -> str:
        """The type, such as "f32"."""
        return type_name(self.c.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents in numpy's order, without leading ones."""
        extents = [int(self.c.ne[i]) for i in range(4)]
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        return tuple(reversed(extents))

    @property
    def op(self) -> str:
        """The op that computes the tensor, such as "MUL_MAT"; "NONE" for an input."""
        return text_of(lib.ggml_op_desc(self.c))

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return int(lib.ggml_nbytes(self.c))

    def numpy(self) -> Array:
        """Returns the values without a copy. Changes of the array change the tensor.

        The tensor must have memory that the CPU can access, and a type that numpy has. Use get() for other tensors. After a graph is
        computed, only its outputs and its inputs still have their values.
        """
        dtype = numpy_type(self.type)
        buffer = self.c.view_src.buffer if self.c.view_src != ffi.NULL else self.c.buffer
        if self.c.data == ffi.NULL:
            raise BerthError(f"tensor '{self.name}' has no memory; allocate the context or compute the graph first")
        if dtype is None:
            raise BerthError(f"numpy has no type {self.type}; get() returns the values of tensor '{self.name}' as float32")
        if buffer != ffi.NULL and not lib.ggml_backend_buffer_is_host(buffer):
            raise BerthError(f"tensor '{self.name}' is in the memory of a device; get() copies it")
        n_dims = len(self.shape)
        strides = tuple(int(self.c.nb[i]) for i in reversed(range(n_dims)))
        flat = view(self.c.data, self.nbytes, (self.ctx, self.memory), writable=True)
        array: Array = np.lib.stride_tricks.as_strided(flat.view(dtype), self.shape, strides)
        return array

    def get(self) -> Array:
        """Returns a copy of the values, from the memory of any device. Quantised values are converted to float32."""
        from .gguf import dequantize  # pylint: disable=import-outside-toplevel

        if self.c.data == ffi.NULL:
            raise BerthError(f"tensor '{self.name}' has no memory; allocate the context or compute the graph first")
        if not lib.ggml_is_contiguous(self.c) or (self.c.buffer == ffi.NULL and self.c.view_src == ffi.NULL):
            return self.numpy().copy()
        data: Array = np.empty(self.nbytes, np.uint8)
        lib.ggml_backend_tensor_get(self.c, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)
        dtype = numpy_type(self.type)
        return data.view(dtype).reshape(self.shape) if dtype is not None else dequantize(data, self.type, self.shape)

    def set(self, values: Array) -> None:
        """Sets the values, in the memory of any device. float32 values are quantised to the type of the tensor."""
        from .gguf import quantize  # pylint: disable=import-outside-toplevel

        if self.c.data == ffi.NULL:
            raise BerthError(f"tensor '{self.name}' has no memory; allocate the context first")
        dtype = numpy_type(self.type)
        data: Array = np.ascontiguousarray(values, dtype) if dtype is not None else quantize(values, self.type)
        if data.nbytes != self.nbytes or (dtype is not None and data.size != int(np.prod(self.shape))):
            raise ValueError(f"tensor '{self.name}' has the shape {self.shape}, but the values have {values.shape}")
        if self.c.buffer == ffi.NULL and self.c.view_src == ffi.NULL:
            self.numpy()[...] = values
            return
        lib.ggml_backend_tensor_set(self.c, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.type}, {self.shape}, {self.op})"

    def __add__(self, other: Tensor) -> Tensor:
        return self.ctx.op("add", self, other)

    def __sub__(self, other: Tensor) -> Tensor:
        return self.ctx.op("sub", self, other)

    def __mul__(self, other: Tensor) -> Tensor:
        return self.ctx.op("mul", self, other)

    def __truediv__(self, other: Tensor) -> Tensor:
        return self.ctx.op("div", self, other)


class Graph:
    """Ops in an order in which sources come first."""

    def __init__(self, ctx: Context, c: Any, outputs: list[Tensor]) -> None:
        self.ctx = ctx
        self.c = c
        self.outputs = outputs
        """the tensors that the graph was built for"""
        self.memory: Any = None

    @property
    def nodes(self) -> list[Tensor]:
        """The tensors that ops compute, in order."""
        tensors = [Tensor(self.ctx, lib.ggml_graph_node(self.c, i)) for i in range(len(self))]
        for tensor in tensors:
            tensor.memory = self.memory
        return tensors

    def __len__(self) -> int:
        return int(lib.ggml_graph_n_nodes(self.c))


class Context:
    """Owns tensors and graphs. The constructors of ops are its methods: ctx.mul_mat(a, b) is ggml_mul_mat.

    n_tensors: the number of tensors and ops for which there is room. A constructor raises BerthError if its arguments break a rule.
    """

    def __init__(self, n_tensors: int = 2048) -> None:
        size = n_tensors * lib.ggml_tensor_overhead() + 2 * lib.ggml_graph_overhead_custom(n_tensors, False)
        params = ffi.new("struct ggml_init_params *", {"mem_size": size, "no_alloc": True})
        self._n_tensors = n_tensors
        self._c = ffi.gc(not_null(lib.ggml_init(params[0])), lib.ggml_free)
        self._keep: list[Any] = []

    def new_tensor(self, shape: Sequence[int] | int, type: str = "f32", name: str = "") -> Tensor:
        """Creates a tensor without memory. allocate() gives it memory on a device."""
        extents = [shape] if isinstance(shape, int) else list(shape)
        if not 1 <= len(extents) <= 4:
            raise ValueError(f"the shape has {len(extents)} dimensions; 1 to 4 are possible")
        ne = ffi.new("int64_t[]", list(reversed([int(x) for x in extents])))
        return self._tensor(lib.ggml_new_tensor(self._c, type_number(type), len(extents), ne), name)

    def from_numpy(self, array: Array, name: str = "") -> Tensor:
        """Creates a tensor whose memory is that of the array, without a copy. The array must be contiguous."""
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous; use numpy.ascontiguousarray")
        tensor = self.new_tensor(array.shape or (1,), type_of_numpy(array.dtype), name)
        tensor.c.data = ffi.cast("void *", array.ctypes.data)
        self._keep.append(array)
        return tensor

    def allocate(self, backend: Backend) -> int:
        """Gives memory on the backend to all tensors without memory, and returns its size in bytes.

        Call it after the tensors of inputs and weights are created, and before the ops.
        """
        buffer = lib.ggml_backend_alloc_ctx_tensors(self._c, backend.c)
        if buffer == ffi.NULL:
            raise last_error()
        self._keep += [backend, ffi.gc(buffer, lib.ggml_backend_buffer_free)]
        return int(lib.ggml_backend_buffer_get_size(buffer))

    def op(self, name: str, *args: Tensor | float | int | bool | str | None) -> Tensor:
        """Calls the constructor ggml_<name>. A None stands for a NULL tensor, a text for a type."""
        if name not in _cdef.OPS:
            raise ValueError(f"unknown op '{name}'; the ops are {', '.join(_cdef.OPS)}")
        letters = _cdef.OPS[name]
        if len(args) != len(letters):
            raise TypeError(f"{name} takes {len(letters)} arguments, but {len(args)} are given")
        values: list[Any] = []
        for arg, letter in zip(args, letters):
            if letter == "t":
                values.append(arg.c if isinstance(arg, Tensor) else ffi.NULL)
            elif letter == "y":
                values.append(type_number(str(arg)))
            else:
                values.append(arg)
        return self._tensor(getattr(lib, "ggml_" + name)(self._c, *values), "")

    def __getattr__(self, name: str) -> Any:
        if name not in _cdef.OPS:
            raise AttributeError(name)
        return lambda *args: self.op(name, *args)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *_cdef.OPS]

    def graph(self, *outputs: Tensor) -> Graph:
        """Builds the graph that computes the outputs. Their values stay valid after the graph is computed."""
        c = lib.ggml_new_graph_custom(self._c, self._n_tensors, False)
        not_null(c)
        for tensor in outputs:
            lib.ggml_set_output(tensor.c)
            lib.ggml_build_forward_expand(c, tensor.c)
        check(lib.berth_graph_check(c))
        return Graph(self, c, list(outputs))

    def _tensor(self, c: Any, name: str) -> Tensor:
        not_null(c)
        if lib.berth_is_poison(c):
            raise BerthError(text_of(lib.berth_poison_error(c)))
        if name:
            lib.ggml_set_name(c, name.encode())
        return Tensor(self, c)


def devices() -> list[tuple[str, str, int]]:
    """Returns the devices: name, description and free memory in bytes."""
    lib.ggml_backend_load_all()
    rows = []
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    for i in range(lib.ggml_backend_dev_count()):
        device = lib.ggml_backend_dev_get(i)
        lib.ggml_backend_dev_memory(device, free, total)
        rows.append((text_of(lib.ggml_backend_dev_name(device)), text_of(lib.ggml_backend_dev_description(device)), int(free[0])))
    return rows


class Backend:
    """Runs graphs on one device. name: the device as devices() returns it. threads: of the CPU; 0: the default."""

    def __init__(self, name: str = "CPU", threads: int = 0) -> None:
        lib.ggml_backend_load_all()
        device = lib.ggml_backend_dev_by_name(name.encode())
        if device == ffi.NULL:
            raise BerthError(f"there is no device '{name}'; the devices are {', '.join(d[0] for d in devices())}")
        self.c = ffi.gc(not_null(lib.ggml_backend_dev_init(device, ffi.NULL)), lib.ggml_backend_free)
        self._flag = Flag()
        registry = lib.ggml_backend_dev_backend_reg(device)
        stop = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_abort_callback")
        if stop != ffi.NULL:
            set_stop = ffi.cast("void (*)(ggml_backend_t, ggml_abort_callback, void *)", stop)
            set_stop(self.c, lib.berth_flag_is_set, self._flag.pointer)
        n = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
        if threads > 0 and n != ffi.NULL:
            ffi.cast("void (*)(ggml_backend_t, int)", n)(self.c, threads)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return text_of(lib.ggml_backend_name(self.c))

    def plan(self, graph: Graph) -> Plan:
        """Plans the memory of a graph and allocates it. compute() does this if it was not done before.

        Returns the peak and the bound; the plan has no items.
        """
        galloc = ffi.gc(
            not_null(lib.ggml_gallocr_new(lib.ggml_backend_get_default_buffer_type(self.c))), lib.ggml_gallocr_free
        )
        if not lib.ggml_gallocr_alloc_graph(galloc, graph.c):
            raise last_error()
        graph.memory = (self, galloc)
        for tensor in graph.outputs:
            tensor.memory = graph.memory
        report = ffi.new("struct berth_plan_report *")
        check(lib.berth_gallocr_report(galloc, 0, report))
        return Plan(
            items=np.zeros(0), offsets=np.zeros(0, np.uint64), peak=report.peak, bound=report.bound, proven=report.proven,
            fits=True, method=text_of(report.method), gap=report.gap, time_us=report.time_us,
        )  # fmt: skip

    def compute(self, graph: Graph) -> None:
        """Computes a graph. Ctrl-C ends it and raises KeyboardInterrupt."""
        if graph.memory is None:
            self.plan(graph)
        self._flag.set(False)
        run_long(lambda: check(lib.ggml_backend_graph_compute(self.c, graph.c)), self._flag)
