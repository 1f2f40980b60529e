# SPDX-License-Identifier: MIT
"""Tests the package itself: how it finds the libraries, its types, its wheel, the reference, and the examples."""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import berth

ROOT = Path(__file__).parents[1]
LIBRARIES = os.environ.get("BERTH_LIBRARY_DIR", "")


def python(code, **environment):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)


def test_missing_library():
    run = python("import berth", BERTH_LIBRARY_DIR="/nowhere")
    assert run.returncode != 0 and "libberth.so was not found" in run.stderr and "/nowhere/libberth.so" in run.stderr
    assert "set BERTH_LIBRARY_DIR" in run.stderr


def test_version():
    assert berth.__version__.startswith("1.")
    assert f'version = "{berth.__version__.split("-")[0]}"' in (ROOT / "pyproject.toml").read_text()


def test_errors_are_quiet():
    run = python("import berth\ntry: berth.plan([(3, 2, 1)])\nexcept berth.BerthError as e: print(e)")
    assert run.stdout.startswith("plan: item 0") and run.stderr == ""


def test_everything_public_is_documented():
    missing = []
    for name in berth.__all__:
        thing = getattr(berth, name)
        if not callable(thing):
            continue
        if not inspect.getdoc(thing):
            missing.append(name)
        if inspect.isclass(thing):
            members = inspect.getmembers(thing, lambda m: inspect.isfunction(m) or isinstance(m, property))
            missing += [f"{name}.{key}" for key, member in members if not key.startswith("_") and not inspect.getdoc(member)]
    assert missing == []


def test_types(tmp_path):
    mypy = shutil.which("mypy", path="/usr/bin") or shutil.which("mypy")
    if mypy is None:
        pytest.skip("mypy is not installed")
    run = subprocess.run([mypy, "--cache-dir", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(not LIBRARIES, reason="BERTH_LIBRARY_DIR is not set")
def test_wheel_contains_the_libraries(tmp_path):
    pytest.importorskip("wheel")
    pytest.importorskip("pip")
    source = tmp_path / "source" / "python"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    shutil.copytree(ROOT.parent / "models", source.parent / "models", ignore=lambda _, names: {n for n in names if "tales-q8_0" not in n})
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (wheel,) = tmp_path.glob("berth-*-py3-none-linux_*.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    environment = {k: v for k, v in os.environ.items() if k not in ("BERTH_LIBRARY_DIR", "LD_LIBRARY_PATH")}
    environment["PYTHONPATH"] = str(tmp_path / "site")
    code = "import berth; m = berth.Model(threads=1); print(m.path, m.generate('Once', max_tokens=3).n_generated)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.stdout.startswith(str(tmp_path / "site")) and run.stdout.endswith(" 3\n"), run.stderr


@pytest.mark.parametrize("script", sorted((ROOT.parent / "examples" / "python").glob("*.py")), ids=lambda path: path.name)
def test_examples(script, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout
