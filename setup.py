"""Builds the compiled parts: kernels/*.pyx as lucebox._kernels, ggml's libraries into lucebox/ggml/lib."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
GGML_LIB = Path("lucebox") / "ggml" / "lib"


class BuildExtensions(build_ext):
    """The kernels, then ggml, whose libraries are copied beside the code that loads them."""

    def run(self) -> None:
        super().run()
        sys.path.insert(0, str(ROOT / "vendor" / "ggml"))
        import build as ggml_build

        base = ROOT if self.inplace else Path(self.build_lib)
        ggml_build.install(base / GGML_LIB)


def kernels() -> list[Extension]:
    """One extension for each kernel, compiled with full optimisation."""
    return [
        Extension(
            f"lucebox._kernels.{path.stem}",
            [path.relative_to(ROOT).as_posix()],
            include_dirs=[np.get_include()],
            extra_compile_args=["-O3", "-g0", "-fno-math-errno"],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        )
        for path in sorted((ROOT / "kernels").glob("*.pyx"))
    ]


setup(
    ext_modules=cythonize(
        kernels(),
        build_dir="build",
        include_path=["kernels"],
        language_level=3,
        compiler_directives={"boundscheck": False, "wraparound": False, "cdivision": True},
    ),
    cmdclass={"build_ext": BuildExtensions},
)
