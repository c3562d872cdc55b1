"""Builds the compiled parts: kernels/*.pyx as lucebox._kernels, ggml's libraries into lucebox/ggml/lib."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import ExecError

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from vendor.ggml import build  # noqa: E402
from vendor.ggml.errors import BuildError  # noqa: E402
from vendor.ggml.toolchain import has_compiler  # noqa: E402

GGML_LIB = Path("lucebox") / "ggml" / "lib"


class BuildExtensions(build_ext):
    """The kernels, then ggml, whose libraries are copied beside the code that loads them."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True  # one compiler for each core

    def run(self) -> None:
        super().run()
        base = ROOT if self.inplace else Path(self.build_lib)
        try:
            build.install(base / GGML_LIB)
        except BuildError as error:
            raise ExecError(str(error)) from error


class LuceboxDistribution(Distribution):
    """Never pure Python: where no compiler is, ggml's libraries are in it all the same."""

    def has_ext_modules(self) -> bool:
        return True


def kernels() -> list[Extension]:
    """One extension for each kernel, fully optimised. None without a compiler: NumPy fills in."""
    if not has_compiler():
        return []
    return [
        Extension(
            f"lucebox._kernels.{path.stem}",
            [path.relative_to(ROOT).as_posix()],
            include_dirs=[np.get_include()],
            extra_compile_args=["-O3", "-g0", "-fno-math-errno"],
            depends=[header.relative_to(ROOT).as_posix() for header in (ROOT / "kernels").glob("*.h")],
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
    distclass=LuceboxDistribution,
    cmdclass={"build_ext": BuildExtensions},
)
