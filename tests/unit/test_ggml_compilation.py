"""Compiling with cmake and ninja: a checkout in miniature, shaped as ggml's is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vendor.ggml.compilation import Compilation, cmake_options, default_backends
from vendor.ggml.errors import BuildError
from vendor.ggml.progress import Progress
from vendor.ggml.toolchain import find_toolchain

# Variants: `plain` runs anywhere, `other` nowhere, `good` and `newest` here; the compiler fails at `newest`.
_PROJECT = """
cmake_minimum_required(VERSION 3.14)
project("ggml" C CXX)
add_subdirectory(src)
"""
_SOURCE = """
add_library(ggml-base base.cpp)
add_library(ggml ggml.cpp)
target_link_libraries(ggml PUBLIC ggml-base)
function(backend name source)
    add_library(${name} MODULE ${source})
    add_dependencies(ggml ${name})
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    set(GGML_AVAILABLE_BACKENDS "${GGML_AVAILABLE_BACKENDS};${name}" CACHE INTERNAL "")
endfunction()
backend(ggml-rpc base.cpp)
foreach(variant plain other good newest)
    backend(ggml-cpu-${variant} ${variant}.cpp)
    add_library(ggml-cpu-${variant}-feats OBJECT score.cpp)
    target_compile_definitions(ggml-cpu-${variant}-feats PRIVATE SCORE_${variant})
    set_target_properties(ggml-cpu-${variant}-feats PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()
"""
_SCORE = """
extern "C" int ggml_backend_score() {
#if defined(SCORE_plain)
    return 1;
#elif defined(SCORE_good)
    return 20;
#elif defined(SCORE_newest)
    return 300;
#else
    return 0;
#endif
}
"""


def write_checkout(folder: Path, *, newest: str) -> Path:
    src = folder / "src"
    src.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(_PROJECT, encoding="utf-8")
    (src / "CMakeLists.txt").write_text(_SOURCE, encoding="utf-8")
    texts = {
        "score": _SCORE,
        "newest": newest,
        **dict.fromkeys(("base", "ggml", "plain", "other", "good"), ""),
    }
    for name, text in texts.items():
        (src / f"{name}.cpp").write_text(text + f"\nint {name}_value;\n", encoding="utf-8")
    return folder


def compile_checkout(folder: Path, backends: tuple[str, ...] = (), *, newest: str = "") -> list[str]:
    source = write_checkout(folder / "source", newest=newest)
    libraries = Compilation(find_toolchain(), source, folder / "work", Progress()).run(backends)
    return sorted(path.name for path in libraries)


_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_ALWAYS = [f"libggml-base.{_SUFFIX}", "libggml-cpu-plain.so", "libggml-rpc.so", f"libggml.{_SUFFIX}"]


def test_only_the_best_variant_and_the_one_for_all_are_built(tmp_path: Path) -> None:
    assert compile_checkout(tmp_path) == sorted([*_ALWAYS, "libggml-cpu-newest.so"])


def test_a_variant_that_the_compiler_does_not_know_gives_way_to_the_next(tmp_path: Path) -> None:
    assert compile_checkout(tmp_path, newest="#error too new") == sorted([*_ALWAYS, "libggml-cpu-good.so"])


def test_a_backend_that_cannot_be_built_is_an_error_that_shows_why(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"(?s)unknown target 'ggml-cuda'.*LUCEBOX_BACKENDS"):
        compile_checkout(tmp_path, ("cuda",))


def test_options_switch_on_what_is_asked_for_and_nothing_else() -> None:
    options = cmake_options(("vulkan",))
    assert {"-DGGML_VULKAN=ON", "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF", "-DGGML_LLAMAFILE=ON"} <= set(options)
    assert default_backends() == (("metal",) if sys.platform == "darwin" else ())


def test_cuda_is_compiled_for_the_gpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" in cmake_options(("cuda",))
    monkeypatch.setenv("CUDAARCHS", "90")
    assert not [option for option in cmake_options(("cuda",)) if "ARCHITECTURES" in option]
