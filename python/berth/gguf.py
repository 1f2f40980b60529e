# SPDX-License-Identifier: MIT
"""Model files (GGUF): a reader with numpy views of the mapped file, and a writer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence, Union

import numpy as np
import numpy.typing as npt

from ._library import Flag, StoppedError, check, ffi, last_error, lib, not_null, run_long, text_of

Array = npt.NDArray[Any]
Path = Union[str, "os.PathLike[str]"]
Value = Union[bool, int, float, str, Array, "list[str]"]
"""The value of a key: a number, a text, an array of numbers, or a list of texts."""

# ---- types of tensors ----

_NUMPY_TYPES = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "i8": "<i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
_TYPES_MAX = 256  # more than the library has; the block of an unknown type has 0 elements
TYPES = {text_of(lib.ggml_type_name(i)): i for i in range(_TYPES_MAX) if lib.ggml_blck_size(i) > 0}
"""The types of tensors: name to number, such as {"f32": 0, "q8_0": 8}."""
_TYPE_NAMES = {number: name for name, number in TYPES.items()}


def type_number(name: str) -> int:
    """Returns the number of a type. Upper and lower case are the same."""
    for known, number in TYPES.items():
        if known.lower() == name.lower():
            return number
    raise ValueError(f"unknown type '{name}'; the types are {', '.join(TYPES)}")


def type_name(number: int) -> str:
    """Returns the name of a type."""
    return _TYPE_NAMES.get(number, str(number))


def numpy_type(name: str) -> np.dtype[Any] | None:
    """Returns the type of numpy with the same values, or None for types that numpy does not have."""
    return np.dtype(_NUMPY_TYPES[name]) if name in _NUMPY_TYPES else None


def type_of_numpy(dtype: np.dtype[Any]) -> str:
    """Returns the type with the same values as a type of numpy."""
    for name, text in _NUMPY_TYPES.items():
        if np.dtype(text) == dtype:
            return name
    raise ValueError(f"tensors cannot have the type {dtype} of numpy; convert it to one of {', '.join(_NUMPY_TYPES)}")


def view(pointer: Any, size: int, owner: Any, writable: bool = False) -> Array:
    """Returns size bytes of C memory as an array without a copy. The array keeps `owner` alive."""
    held = ffi.gc(ffi.cast("char *", pointer), lambda _: owner) if size > 0 else ffi.NULL
    array: Array = np.frombuffer(ffi.buffer(held, size), np.uint8) if size > 0 else np.zeros(0, np.uint8)
    array.flags.writeable = writable and size > 0
    return array


def dequantize(data: Array, type_: str, shape: Sequence[int]) -> Array:
    """Converts the bytes of a tensor to float32 values."""
    traits = lib.ggml_get_type_traits(type_number(type_))
    raw: Array = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    plain = numpy_type(type_)
    if plain is not None:
        return raw.view(plain).reshape(shape).astype(np.float32)
    if traits.to_float == ffi.NULL:
        raise ValueError(f"type {type_} does not convert to f32")
    out: Array = np.empty(shape, np.float32)
    if raw.size != lib.ggml_row_size(type_number(type_), out.size):
        raise ValueError(f"{out.size} elements of {type_} have {lib.ggml_row_size(type_number(type_), out.size)} bytes, not {raw.size}")
    traits.to_float(ffi.cast("void *", raw.ctypes.data), ffi.cast("float *", out.ctypes.data), out.size)
    return out


def quantize(values: Array, type_: str) -> Array:
    """Converts float32 values to a type. Returns an array of bytes, one row per row of values.

    The number of columns must be a multiple of the type's block size.
    """
    rows: Array = np.ascontiguousarray(values, np.float32)
    n = rows.shape[-1] if rows.ndim else 1
    number = type_number(type_)
    block = lib.ggml_blck_size(number)
    if n % block != 0:
        raise ValueError(f"rows of {n} elements cannot have type {type_}, whose blocks have {block} elements")
    n_rows = rows.size // n if n else 0
    out: Array = np.empty((*rows.shape[:-1], lib.ggml_row_size(number, n)), np.uint8)

    def work() -> None:
        source, target = ffi.cast("float *", rows.ctypes.data), ffi.cast("void *", out.ctypes.data)
        if lib.ggml_quantize_chunk(number, source, target, 0, n_rows, n, ffi.NULL) != out.size:
            raise last_error()

    if rows.size > 0:
        run_long(work, Flag())
    return out


# ---- keys ----

_GGUF_TYPES = {
    lib.GGUF_TYPE_UINT8: "<u1", lib.GGUF_TYPE_INT8: "<i1", lib.GGUF_TYPE_UINT16: "<u2", lib.GGUF_TYPE_INT16: "<i2",
    lib.GGUF_TYPE_UINT32: "<u4", lib.GGUF_TYPE_INT32: "<i4", lib.GGUF_TYPE_FLOAT32: "<f4", lib.GGUF_TYPE_BOOL: "?",
    lib.GGUF_TYPE_UINT64: "<u8", lib.GGUF_TYPE_INT64: "<i8", lib.GGUF_TYPE_FLOAT64: "<f8",
}  # fmt: skip


class Keys(Mapping[str, Value]):
    """The keys of a model file, as a mapping."""

    def __init__(self, meta: Any, owner: Any) -> None:
        self._meta = meta
        self._owner = owner

    def __len__(self) -> int:
        return int(lib.gguf_get_n_kv(self._meta))

    def __iter__(self) -> Iterator[str]:
        return (text_of(lib.gguf_get_key(self._meta, i)) for i in range(len(self)))

    def __getitem__(self, key: str) -> Value:
        i = lib.gguf_find_key(self._meta, key.encode())
        if i < 0:
            raise KeyError(key)
        kind = lib.gguf_get_kv_type(self._meta, i)
        if kind == lib.GGUF_TYPE_STRING:
            return text_of(lib.gguf_get_val_str(self._meta, i))
        if kind == lib.GGUF_TYPE_ARRAY:
            return self._array(i)
        dtype = np.dtype(_GGUF_TYPES[kind])
        value: Value = np.frombuffer(ffi.buffer(lib.gguf_get_val_data(self._meta, i), dtype.itemsize), dtype)[0].item()
        return value

    def _array(self, i: int) -> Value:
        kind, n = lib.gguf_get_arr_type(self._meta, i), lib.gguf_get_arr_n(self._meta, i)
        if kind == lib.GGUF_TYPE_STRING:
            return [text_of(lib.gguf_get_arr_str(self._meta, i, k)) for k in range(n)]
        dtype = np.dtype(_GGUF_TYPES[kind])
        return view(lib.gguf_get_arr_data(self._meta, i), n * dtype.itemsize, self._owner).view(dtype)


# ---- reading ----


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model file."""

    name: str
    """its name"""
    type: str
    """its type, such as "q8_0" """
    shape: tuple[int, ...]
    """its extents in numpy's order: the last one is the length of a row"""
    data: Array
    """its bytes: a view of the mapped file, read-only"""

    @property
    def array(self) -> Array:
        """The values as a read-only view of the mapped file. For types that numpy does not have: bytes, one row per row."""
        dtype = numpy_type(self.type)
        if dtype is not None:
            return self.data.view(dtype).reshape(self.shape)
        return self.data.reshape(*self.shape[:-1], lib.ggml_row_size(type_number(self.type), self.shape[-1]))

    def to_float(self) -> Array:
        """Returns the values as float32."""
        return dequantize(self.data, self.type, self.shape)


class GGUFReader:
    """A model file, mapped into memory. Nothing is read before it is used.

    >>> file = berth.GGUFReader("model.gguf")
    >>> file.keys["general.architecture"]
    >>> file.tensors["token_embd.weight"].array
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        handle = not_null(lib.berth_gguf_map_open(self.path.encode(), ffi.NULL))
        self._map = ffi.gc(handle, lib.berth_gguf_map_close)
        self._meta = lib.berth_gguf_map_meta(self._map)
        self.keys = Keys(self._meta, self._map)
        """the keys of the file"""
        self.version = int(lib.gguf_get_version(self._meta))
        """version of the format"""
        self.alignment = int(lib.gguf_get_alignment(self._meta))
        """alignment of the tensors in bytes"""
        infos = [self._tensor(i) for i in range(lib.gguf_get_n_tensors(self._meta))]
        self.tensors: dict[str, TensorInfo] = {info.name: info for info in infos}
        """the tensors by name, in file order"""

    def _tensor(self, i: int) -> TensorInfo:
        ne = lib.gguf_get_tensor_ne(self._meta, i)
        extents = [int(ne[k]) for k in range(4)]
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        size = lib.gguf_get_tensor_size(self._meta, i)
        data = view(lib.berth_gguf_map_data(self._map, i), size, self._map)
        name = text_of(lib.gguf_get_tensor_name(self._meta, i))
        return TensorInfo(name, type_name(lib.gguf_get_tensor_type(self._meta, i)), tuple(reversed(extents)), data)


# ---- writing ----

_SETTERS = {
    "u8": lib.gguf_set_val_u8, "i8": lib.gguf_set_val_i8, "u16": lib.gguf_set_val_u16, "i16": lib.gguf_set_val_i16,
    "u32": lib.gguf_set_val_u32, "i32": lib.gguf_set_val_i32, "u64": lib.gguf_set_val_u64, "i64": lib.gguf_set_val_i64,
    "f32": lib.gguf_set_val_f32, "f64": lib.gguf_set_val_f64,
}  # fmt: skip


class GGUFWriter:
    """Writes a model file.

    >>> writer = berth.GGUFWriter({"general.architecture": "llama"})
    >>> writer.add_tensor("weight", array, type="q8_0")
    >>> writer.write("model.gguf")
    """

    def __init__(self, keys: Mapping[str, Value] | None = None) -> None:
        self._meta = ffi.gc(not_null(lib.gguf_init_empty()), lib.gguf_free)
        self._keep: list[Array] = []
        for key, value in (keys or {}).items():
            self.set(key, value)

    def set(self, key: str, value: Value | Sequence[str] | Sequence[int] | Sequence[float], type: str | None = None) -> None:
        """Sets a key. Integers are written as i32, or as i64 if they are larger; floats as f32; arrays with their type of numpy.

        type: another type of a number: u8, i8, u16, i16, u32, i32, u64, i64, f32 or f64.
        """
        name = key.encode()
        if type is not None:
            if type not in _SETTERS:
                raise ValueError(f"unknown type '{type}' of key {key}; the types are {', '.join(_SETTERS)}")
            _SETTERS[type](self._meta, name, value)
        elif isinstance(value, (bool, np.bool_)):
            lib.gguf_set_val_bool(self._meta, name, bool(value))
        elif isinstance(value, (int, np.integer)):
            is_small = -(2**31) <= int(value) < 2**31
            (lib.gguf_set_val_i32 if is_small else lib.gguf_set_val_i64)(self._meta, name, int(value))
        elif isinstance(value, (float, np.floating)):
            lib.gguf_set_val_f32(self._meta, name, float(value))
        elif isinstance(value, str):
            lib.gguf_set_val_str(self._meta, name, value.encode())
        else:
            self._set_array(key, value)
        if lib.gguf_find_key(self._meta, name) < 0:
            raise last_error()

    def _set_array(self, key: str, value: Any) -> None:
        values: Any = list(value) if not isinstance(value, np.ndarray) else value
        if len(values) > 0 and isinstance(values[0], str):
            texts = [ffi.new("char[]", text.encode()) for text in values]
            lib.gguf_set_arr_str(self._meta, key.encode(), ffi.new("const char *[]", texts), len(texts))
            return
        array: Array = np.ascontiguousarray(values)
        for number, text in _GGUF_TYPES.items():
            if np.dtype(text) == array.dtype:
                lib.gguf_set_arr_data(self._meta, key.encode(), number, ffi.cast("void *", array.ctypes.data), array.size)
                return
        raise ValueError(f"key {key}: arrays of {array.dtype} are not supported")

    def add_tensor(self, name: str, array: Array, type: str | None = None, shape: Sequence[int] | None = None) -> None:
        """Adds a tensor. The array is written by write(), so it must not change before.

        type: the type in the file. float32 values are quantised to it, unless the array has bytes (uint8): then it holds data of
        this type, and shape are the extents. None: the type of the array.
        """
        if type is not None and array.dtype == np.uint8:
            extents = tuple(shape) if shape is not None else ()
            if not extents:
                raise ValueError(f"tensor {name}: bytes of type {type} require the extents in shape")
            data: Array = np.ascontiguousarray(array)
        else:
            extents = array.shape
            type = type or type_of_numpy(array.dtype)
            plain = numpy_type(type)
            data = np.ascontiguousarray(array, plain) if plain is not None else quantize(array, type)
        number = type_number(type)
        if not 1 <= len(extents) <= 4:
            raise ValueError(f"tensor {name} has {len(extents)} dimensions; 1 to 4 are possible")
        params = ffi.new("struct ggml_init_params *", {"mem_size": 2 * lib.ggml_tensor_overhead() + 256, "no_alloc": True})
        ctx = ffi.gc(not_null(lib.ggml_init(params[0])), lib.ggml_free)
        ne = ffi.new("int64_t[]", list(reversed([int(x) for x in extents])))
        tensor = lib.ggml_new_tensor(ctx, number, len(extents), ne)
        if lib.berth_is_poison(tensor):
            raise last_error()
        if lib.ggml_nbytes(tensor) != data.nbytes:
            raise ValueError(f"tensor {name}: {lib.ggml_nbytes(tensor)} bytes are required, but the array has {data.nbytes}")
        lib.ggml_set_name(tensor, name.encode())
        lib.gguf_add_tensor(self._meta, tensor)
        if lib.gguf_find_tensor(self._meta, name.encode()) < 0:
            raise last_error()
        lib.gguf_set_tensor_data(self._meta, name.encode(), ffi.cast("void *", data.ctypes.data))
        self._keep.append(data)

    def write(self, path: Path) -> None:
        """Writes the file."""
        name = os.fspath(path).encode()

        def work() -> None:
            if not lib.gguf_write_to_file(self._meta, name, False):
                raise last_error()

        run_long(work, Flag())


__all__ = [
    "GGUFReader", "GGUFWriter", "Keys", "StoppedError", "TYPES", "TensorInfo", "check", "dequantize", "numpy_type", "quantize",
    "type_name", "type_number", "type_of_numpy", "view",
]  # fmt: skip
