# SPDX-License-Identifier: MIT
"""Paths for the tests, which tests/python/CMakeLists.txt sets in the environment."""

import os
from pathlib import Path

import pytest

import berth

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "data" / "tales-3m-q8_0.gguf"


@pytest.fixture(scope="session")
def model() -> berth.Model:
    """The tales model of the tests, on one thread."""
    return berth.Model(MODEL, device="CPU", threads=1, n_ctx=256)


@pytest.fixture(scope="session")
def program() -> str:
    """The program berth."""
    name = os.environ.get("BERTH_PROGRAM", str(ROOT / "build" / "bin" / "berth"))
    if not os.path.exists(name):
        pytest.skip("the program berth is not built")
    return name
