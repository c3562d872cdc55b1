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


_NO_GPU = """
message(SEND_ERROR "CUDA_ARCHITECTURES is set to \\"native\\", but no GPU was detected.")
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


def test_a_build_for_the_gpus_of_a_machine_without_any_says_how_to_name_them(tmp_path: Path) -> None:
    source = write_checkout(tmp_path / "source", newest="")
    with (source / "CMakeLists.txt").open("a", encoding="utf-8") as file:
        file.write(_NO_GPU)
    with pytest.raises(BuildError, match=r"(?s)no GPU was detected.*CUDAARCHS=90"):
        Compilation(find_toolchain(), source, tmp_path / "work", Progress()).run(("cuda",))


def test_options_switch_on_what_is_asked_for_and_nothing_else() -> None:
    options = cmake_options(("vulkan",))
    assert {"-DGGML_VULKAN=ON", "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF", "-DGGML_LLAMAFILE=ON"} <= set(options)
    assert default_backends() == (("metal",) if sys.platform == "darwin" else ())


def test_cuda_is_compiled_for_the_gpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAARCHS", raising=False)
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" in cmake_options(("cuda",))
    monkeypatch.setenv("CUDAARCHS", "90")
    assert not [option for option in cmake_options(("cuda",)) if "ARCHITECTURES" in option]


def test_cuda_records_graphs_and_needs_no_library_that_we_do_not_use() -> None:
    assert {"-DGGML_CUDA_GRAPHS=ON", "-DGGML_CUDA_NCCL=OFF"} <= set(cmake_options(("cuda",)))
    assert not [option for option in cmake_options(("vulkan",)) if "GRAPHS" in option]


@pytest.mark.parametrize("variable", ["GPU_TARGETS", "AMDGPU_TARGETS"])
def test_hip_is_compiled_for_the_gpus_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "gfx1100;gfx90a")
    assert "-DGPU_TARGETS=gfx1100;gfx90a" in cmake_options(("hip",))
    assert not [option for option in cmake_options(("cuda",)) if "GPU_TARGETS" in option]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has its own BLAS")
def test_blas_is_openblas_unless_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GGML_BLAS_VENDOR", raising=False)
    assert "-DGGML_BLAS_VENDOR=OpenBLAS" in cmake_options(("blas", "vulkan"))
    monkeypatch.setenv("GGML_BLAS_VENDOR", "Intel10_64lp")
    assert "-DGGML_BLAS_VENDOR=Intel10_64lp" in cmake_options(("blas",))
    assert not [option for option in cmake_options(("vulkan",)) if "BLAS_VENDOR" in option]


@pytest.mark.parametrize(
    ("variable", "backend"),
    [("CUDAARCHS", "cuda"), ("HIPCXX", "hip"), ("ONEAPI_ROOT", "sycl"), ("VULKAN_SDK", "vulkan")],
)
def test_what_only_one_backend_heeds_is_part_of_its_builds_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str, backend: str
) -> None:
    def identities() -> list[str]:
        return [find_toolchain(backends).identity for backends in ((), ("blas", backend))]

    monkeypatch.delenv(variable, raising=False)
    plain, own = identities()
    monkeypatch.setenv(variable, "another")
    assert identities()[0] == plain
    assert identities()[1] != own
