# SPDX-License-Identifier: MIT
"""Compares the package's C declarations with the headers: a C compiler must accept both together."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from berth import _cdef
from berth._library import ffi

INCLUDE = Path(__file__).parents[2] / "include"


def layout_asserts():
    """One static assert per struct and per member."""
    lines = []
    _, structs, _ = ffi.list_types()
    for name in structs:
        kind = ffi.typeof("struct " + name)
        if name.startswith("_IO") or kind.kind != "struct" or kind.fields is None:
            continue  # opaque
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ffi.sizeof(kind)}, "size of {name}");')
        for field, place in kind.fields:
            lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {place.offset}, "{name}.{field}");')
    return lines


def enum_asserts():
    lines = []
    for line in _cdef.ENUMS.replace("\n", " ").split(";"):
        if "{" in line:
            kind = ffi.typeof(line.split("{")[0].strip())
            lines += [f'_Static_assert({name} == {value}, "{name}");' for value, name in kind.elements.items()]
    return lines


def test_declarations_are_those_of_the_headers(tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    asserts = layout_asserts() + enum_asserts()
    assert len(asserts) > 150
    source = tmp_path / "cdef.c"
    includes = ["berth.h", "berth-model.h", "berth-alloc.h", "ggml-alloc.h", "ggml-backend.h", "gguf.h"]
    text = "#include <stddef.h>\n" + "".join(f'#include "{name}"\n' for name in includes)
    source.write_text(text + _cdef.functions() + "\n" + "\n".join(asserts))
    run = subprocess.run([compiler, "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", source], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
