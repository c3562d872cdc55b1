"""Compiles ggml's shared libraries with cmake and ninja."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vendor.ggml.errors import BuildError
from vendor.ggml.progress import Progress
from vendor.ggml.toolchain import Toolchain

# What LUCEBOX_BACKENDS may name, beside the CPU and RPC, which are always built.
BACKENDS = ("blas", "cuda", "hip", "metal", "musa", "opencl", "sycl", "vulkan")
_HERE = Path(__file__).parent
_NINJA_PROGRESS = re.compile(r"^\[(\d+)/(\d+)\]")
_N_LINES_OF_ERROR = 40


def default_backends() -> tuple[str, ...]:
    """What is built unless LUCEBOX_BACKENDS says otherwise: nothing that needs more than a compiler."""
    return ("metal",) if sys.platform == "darwin" else ()


def cmake_options(backends: Sequence[str]) -> list[str]:
    """What ggml is configured with; part of a build's identity."""
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHARED_LIBS": "ON",
        "GGML_BACKEND_DL": "ON",
        "GGML_NATIVE": "OFF",  # ggml has its variants say what CPU they need, which this would hide
        "GGML_CPU_ALL_VARIANTS": "ON" if _has_variants() else "OFF",
        "GGML_OPENMP": "ON",
        "GGML_LLAMAFILE": "ON",
        "GGML_RPC": "ON",
        "GGML_ALL_WARNINGS": "OFF",
        "GGML_BUILD_TESTS": "OFF",
        "GGML_BUILD_EXAMPLES": "OFF",
        # One file for each library, found by its neighbours: a wheel has no symbolic links.
        "CMAKE_PLATFORM_NO_VERSIONED_SONAME": "ON",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_INSTALL_RPATH": origin,
    }
    options.update({f"GGML_{name.upper()}": "ON" if name in backends else "OFF" for name in BACKENDS})
    if "cuda" in backends:
        # Graphs are kept and computed again as they are, which CUDA can record. Nothing is summed over GPUs.
        options |= {"GGML_CUDA_GRAPHS": "ON", "GGML_CUDA_NCCL": "OFF"}
        if not os.environ.get("CUDAARCHS"):
            options["CMAKE_CUDA_ARCHITECTURES"] = "native"
    if "hip" in backends:
        targets = os.environ.get("GPU_TARGETS") or os.environ.get("AMDGPU_TARGETS")
        if targets:  # cmake itself looks at no variable for them
            options["GPU_TARGETS"] = targets
    if "blas" in backends and sys.platform != "darwin":
        options["GGML_BLAS_VENDOR"] = os.environ.get("GGML_BLAS_VENDOR") or "OpenBLAS"
    return [f"-D{name}={value}" for name, value in options.items()]


def _remedy(output: str) -> str:
    if "no GPU was detected" in output:
        return "Name the compute capability to build for in CUDAARCHS, as CUDAARCHS=90 for an H100."
    return (
        "If a backend that LUCEBOX_BACKENDS asks for is at fault, install its SDK (the README says what each "
        "needs) or leave it out."
    )


def _has_variants() -> bool:
    machines = ("x86_64", "amd64", "aarch64", "arm64", "ppc64le", "s390x", "riscv64")
    return platform.machine().lower() in machines and sys.platform in ("linux", "darwin")


class Compilation:
    """One build of `source` in the folder `work`."""

    def __init__(self, tools: Toolchain, source: Path, work: Path, progress: Progress) -> None:
        self._tools = tools
        self._source = source
        self._work = work
        self._progress = progress

    def run(self, backends: Sequence[str]) -> list[Path]:
        """Builds ggml with `backends` and the CPU variants of use here. Returns the libraries."""
        self._progress.say("configuring ggml")
        self._call(
            [
                *(self._tools.cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={self._tools.ninja}"),
                *(f"-DCMAKE_PROJECT_ggml_INCLUDE={_HERE / 'variants.cmake'}", *cmake_options(backends)),
                *("-S", str(self._source), "-B", str(self._work)),
            ]
        )
        base = ["ggml-base", "ggml", "ggml-rpc", *(f"ggml-{name}" for name in backends)]
        ranked = self._rank_variants()
        if not ranked:
            self._build([*base, "ggml-cpu"])
            return self._libraries()
        try:
            self._build([*base, ranked[-1], ranked[0]])
        except BuildError:
            self._build([*base, ranked[-1]])  # raises what another variant would not mend
            self._build_best(ranked[1:])
        return self._libraries()

    def _build_best(self, ranked: Sequence[str]) -> None:
        """The first of these variants whose instructions this compiler knows; the last is built already."""
        for variant in ranked:
            self._progress.say(f"this compiler is too old for the best variant: trying {variant}")
            with contextlib.suppress(BuildError):
                self._build([variant])
                return

    def _rank_variants(self) -> list[str]:
        """The CPU variants that run on this machine, the best first and the one that runs anywhere last.

        ggml itself scores them, with a function that each variant has; it is compiled alone, in a moment.
        """
        cache = (self._work / "CMakeCache.txt").read_text(encoding="utf-8")
        known = re.search(r"^GGML_AVAILABLE_BACKENDS:INTERNAL=(.*)$", cache, re.MULTILINE)
        names = [name for name in (known[1] if known else "").split(";") if name.startswith("ggml-cpu-")]
        if not names:
            return []
        self._build([f"{name}-feats" for name in names])
        scores = {name: self._score(name) for name in names}
        return sorted((name for name in names if scores[name]), key=lambda name: -scores[name])

    def _score(self, variant: str) -> int:
        folder = self._work / "src" / "CMakeFiles" / f"{variant}-feats.dir"
        objects = [str(path) for path in folder.rglob("*.o")]
        with tempfile.TemporaryDirectory(dir=self._work) as scratch:
            library = Path(scratch, "score.so")
            self._call([*self._tools.cxx, "-shared", "-o", str(library), *objects])
            return int(ctypes.CDLL(str(library)).ggml_backend_score())

    def _build(self, targets: Sequence[str]) -> None:
        n_jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        n_jobs = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", n_jobs))
        self._call([self._tools.ninja, "-C", str(self._work), "-j", str(n_jobs), *targets])

    def _call(self, command: Sequence[str]) -> None:
        lines: list[str] = []
        environment = {name: value for name, value in os.environ.items() if name != "NINJA_STATUS"}
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if step := _NINJA_PROGRESS.match(line):
                    self._progress.update(f"compiling ggml: {step[1]} of {step[2]}")
        if process.returncode:
            shown = "".join(lines[-_N_LINES_OF_ERROR:])
            raise BuildError(
                f"{Path(command[0]).name} failed with status {process.returncode}:\n{shown}\n"
                f"ggml could not be built. {_remedy(shown)}"
            )

    def _libraries(self) -> list[Path]:
        found = [path for path in self._work.rglob("libggml*") if path.suffix in (".so", ".dylib")]
        return [path for path in found if "CMakeFiles" not in path.parts]
