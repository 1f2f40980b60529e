# SPDX-License-Identifier: MIT
"""Builds the package. If BERTH_LIBRARY_DIR is set, the wheel contains the libraries of that folder and the model that comes with Berth."""

import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

LIBRARIES = ("libberth", "libggml", "libggml-base", "libggml-cpu")
folder = os.environ.get("BERTH_LIBRARY_DIR")


class BuildWithLibraries(build_py):
    """Copies the libraries under the names by which they refer to each other."""

    def run(self) -> None:
        super().run()
        if folder is None:
            return
        target = Path(self.build_lib) / "berth" / "lib"
        target.mkdir(parents=True, exist_ok=True)
        for name in LIBRARIES:
            files = [file for file in Path(folder).glob(f"{name}.so*") if file.name.removeprefix(name).count("-") == 0]
            if not files:
                raise SystemExit(f"BERTH_LIBRARY_DIR={folder}: there is no {name}.so; build Berth with shared libraries first")
            for file in files:
                shutil.copy(file, target / file.name)
        model = Path(__file__).resolve().parent.parent / "models" / "tales-q8_0.gguf"
        if model.exists():
            (target.parent / "models").mkdir(exist_ok=True)
            shutil.copy(model, target.parent / "models")


class BinaryDistribution(Distribution):
    """A wheel with libraries is for one platform."""

    def has_ext_modules(self) -> bool:
        return folder is not None


options = {}
if folder is not None:
    from wheel.bdist_wheel import bdist_wheel

    class PlatformWheel(bdist_wheel):  # type: ignore[misc]
        """The libraries do not depend on the version of Python."""

        def get_tag(self) -> tuple:
            return ("py3", "none", super().get_tag()[2])

    options["bdist_wheel"] = PlatformWheel

setup(distclass=BinaryDistribution, cmdclass={"build_py": BuildWithLibraries, **options})
