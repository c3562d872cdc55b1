"""The compilers and build tools of this machine."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vendor.ggml.errors import BuildError

# What cmake and compilers look at, whatever is built, and what they look at for one backend.
_HEEDED = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_PREFIX_PATH")
_HEEDED_FOR: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDACXX", "CUDAARCHS", "CUDAFLAGS", "CUDAHOSTCXX", "CUDAToolkit_ROOT", "CUDA_PATH"),
    "hip": ("HIPCXX", "HIPFLAGS", "ROCM_PATH"),
    "musa": ("MUSA_PATH",),
    "sycl": ("ONEAPI_ROOT",),
    "vulkan": ("VULKAN_SDK",),
}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Commands that build C++; `identity` changes when what they produce may."""

    cmake: str
    ninja: str
    cxx: tuple[str, ...]
    identity: str


def has_compiler() -> bool:
    """Whether both a C and a C++ compiler can be run: the one that CC and CXX name, else the system's."""
    return _compiler("CC", ("cc", "gcc", "clang")) is not None and _cxx() is not None


def find_toolchain(backends: Iterable[str] = ()) -> Toolchain:
    """The tools for a build with `backends`. Raises BuildError when something is missing."""
    cxx = _cxx()
    if cxx is None:
        raise BuildError("There is no C++ compiler. Install one (g++ or clang), or name it in CXX.")
    version = subprocess.run([*cxx, "--version"], capture_output=True, text=True, check=False).stdout
    heeded = [*_HEEDED, *(name for backend in backends for name in _HEEDED_FOR.get(backend, ()))]
    flags = [os.environ.get(name, "") for name in heeded]
    return Toolchain(_tool("cmake"), _tool("ninja"), cxx, "\n".join([version, *flags, cpu_identity()]))


def cpu_identity() -> str:
    """What this CPU can do, as far as the choice of ggml's CPU variant may depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _cxx() -> tuple[str, ...] | None:
    return _compiler("CXX", ("c++", "g++", "clang++"))


def _compiler(variable: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    own = shlex.split(os.environ.get(variable, ""))
    if own:
        return tuple(own) if shutil.which(own[0]) else None
    return next(((name,) for name in names if shutil.which(name)), None)


def _tool(name: str) -> str:
    """cmake or ninja, on the path or beside this Python, where pip puts them."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts")])
    found = shutil.which(name) or shutil.which(name, path=beside)
    if found is None:
        raise BuildError(
            f"{name} is missing. Run {sys.executable} -m pip install {name}, or install it otherwise."
        )
    return found
