# SPDX-License-Identifier: MIT
"""Tests model files: keys and tensors of all kinds, views of the map, quantised types, wrong files."""

import gc

import numpy as np
import pytest

import berth


def test_round_trip(tmp_path):
    path = tmp_path / "all.gguf"
    keys = {
        "i": -7, "big": 2**40, "f": 0.5, "yes": True, "text": "grün", "texts": ["a", "", "ß"],
        "ints": np.arange(5, dtype=np.int16), "floats": np.array([1.5, 2.5]), "bools": np.array([True, False]),
    }  # fmt: skip
    writer = berth.GGUFWriter(keys)
    writer.set("u8", 200, type="u8")
    arrays = {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "f16": np.arange(6, dtype=np.float16).reshape(3, 2, 1),
        "i32": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
        "f64": np.array([1.0, 2.0]),
    }
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write(path)
    file = berth.GGUFReader(path)
    assert set(file.keys) == {*keys, "u8"} and file.keys["u8"] == 200 and "none" not in file.keys
    for name, value in keys.items():
        assert np.array_equal(file.keys[name], value), name
    for name, array in arrays.items():
        tensor = file.tensors[name]
        assert tensor.type == name and np.array_equal(tensor.array.reshape(array.shape), array)
    assert file.tensors["i32"].shape == (2, 3, 4) and file.version == 3 and file.alignment == 32


def test_views_outlive_the_reader(tmp_path):
    path = tmp_path / "view.gguf"
    writer = berth.GGUFWriter()
    writer.add_tensor("x", np.arange(100000, dtype=np.float32))
    writer.write(path)
    array = berth.GGUFReader(path).tensors["x"].array
    gc.collect()
    assert not array.flags.writeable and not array.flags.owndata
    assert array.sum() == np.arange(100000, dtype=np.float32).sum()
    with pytest.raises(ValueError):
        array[0] = 1


@pytest.mark.parametrize("type_, error", [("q8_0", 0.01), ("q4_0", 0.15), ("q6_K", 0.05), ("f16", 0.001), ("bf16", 0.01)])
def test_quantised(tmp_path, type_, error):
    values = np.random.default_rng(1).normal(size=(4, 256)).astype(np.float32)
    writer = berth.GGUFWriter()
    writer.add_tensor("x", values, type=type_)
    raw = berth.quantize(values, type_) if type_ not in ("f16",) else values.astype(np.float16).view(np.uint8)
    if type_ not in ("f16",):
        writer.add_tensor("raw", raw, type=type_, shape=values.shape)
    writer.write(tmp_path / "q.gguf")
    file = berth.GGUFReader(tmp_path / "q.gguf")
    assert file.tensors["x"].type == type_ and file.tensors["x"].shape == (4, 256)
    assert np.abs(file.tensors["x"].to_float() - values).max() < error * np.abs(values).max()
    if "raw" in file.tensors:
        assert (file.tensors["raw"].data == file.tensors["x"].data).all()


def test_refused(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"not a model file")
    with pytest.raises(berth.BerthError, match="not a GGUF file"):
        berth.GGUFReader(tmp_path / "bad.gguf")
    with pytest.raises(berth.BerthError, match="nowhere"):
        berth.GGUFReader(tmp_path / "nowhere.gguf")
    writer = berth.GGUFWriter()
    with pytest.raises(ValueError, match="blocks have 32 elements"):
        writer.add_tensor("x", np.zeros((2, 33), np.float32), type="q8_0")
    with pytest.raises(ValueError, match="cannot have the type complex64"):
        writer.add_tensor("x", np.zeros(3, np.complex64))
    with pytest.raises(ValueError, match="unknown type 'q9'"):
        berth.quantize(np.zeros(32, np.float32), "q9")
    with pytest.raises(ValueError, match="bytes are required"):
        writer.add_tensor("x", np.zeros(5, np.uint8), type="q8_0", shape=(32,))
    with pytest.raises(berth.BerthError):
        writer.write(tmp_path / "no" / "folder.gguf")
