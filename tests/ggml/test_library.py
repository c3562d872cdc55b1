"""Loading ggml: functions by name, the checks, and what happens when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lucebox.errors import GgmlError
from lucebox.ggml import _api
from lucebox.ggml.library import Library, is_blocking, library_folder, load

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"


def fake_libraries(folder: Path, code: str) -> Path:
    """Libraries that load as ggml does, with only the functions in `code`."""
    (folder / "fake.c").write_text(f"#include <stddef.h>\n{code}\n", encoding="utf-8")
    for name in ("ggml-base", "ggml"):
        output = folder / f"lib{name}.{_SUFFIX}"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(output), str(folder / "fake.c")], check=True)
    return folder


def c_version(version: str) -> str:
    return f'const char * ggml_version(void) {{ return "{version}"; }}'


def test_there_is_one_library_and_its_functions_work() -> None:
    library = load()
    assert load() is library
    assert library.ggml_version() == _api.VERSION.encode()
    assert library.ggml_type_size(_api.Type.F16) == 2
    assert library.ggml_add is library.ggml_add


def test_functions_of_the_cpu_and_rpc_backends_are_found_in_their_libraries() -> None:
    library = load()
    assert library.ggml_cpu_has_avx2() in (0, 1)
    assert library.ggml_backend_rpc_reg() == library.ggml_backend_reg_by_name(b"RPC")


def test_a_function_that_ggml_does_not_have_is_named() -> None:
    with pytest.raises(GgmlError, match="no function ggml_divine"):
        load().ggml_divine(1)


def test_a_function_that_the_library_lacks_is_named_on_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries(tmp_path, c_version(_api.VERSION))
    monkeypatch.setattr(Library, "_check_abi", lambda library: None)
    with pytest.raises(GgmlError, match=f"ggml_set_abort_callback is missing in {tmp_path}"):
        Library(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgmlError, match=f"is ggml 9.9.9, but these bindings are for {_api.VERSION}"):
        Library(fake_libraries(tmp_path, c_version("9.9.9")))


def test_tensors_of_another_size_are_refused(tmp_path: Path) -> None:
    code = c_version(_api.VERSION) + "\nsize_t ggml_tensor_overhead(void) { return 400; }"
    with pytest.raises(GgmlError, match="tensors of 400 bytes, these bindings expect 368"):
        Library(fake_libraries(tmp_path, code))


def test_other_numbers_of_operations_are_refused(tmp_path: Path) -> None:
    code = c_version(_api.VERSION) + (
        "\nsize_t ggml_tensor_overhead(void) { return 368; }"
        '\nconst char * ggml_op_name(int op) { return op ? "OTHER" : "NONE"; }'
        '\nconst char * ggml_type_name(int type) { return "f32"; }'
    )
    with pytest.raises(GgmlError, match="1 is OTHER, not DUP"):
        Library(fake_libraries(tmp_path, code))


def test_missing_libraries_are_named(tmp_path: Path) -> None:
    with pytest.raises(GgmlError, match=f"{tmp_path}/libggml.{_SUFFIX} is missing"):
        Library(tmp_path)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    for name in ("ggml-base", "ggml"):
        (tmp_path / f"lib{name}.{_SUFFIX}").write_text("text", encoding="utf-8")
    with pytest.raises(GgmlError, match=r"cannot be loaded: .*libggml-base"):
        Library(tmp_path)


def test_libraries_without_a_backend_for_this_cpu_are_refused(tmp_path: Path) -> None:
    for path in load().folder.iterdir():
        if path.name.startswith(("libggml-base.", "libggml.")):
            shutil.copy2(path, tmp_path)
    code = "from lucebox.ggml.library import load; load()"
    environ = {**os.environ, "LUCEBOX_GGML_LIB": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    assert run.returncode == 1
    assert f"GgmlError: {tmp_path} has no CPU backend that runs on this machine" in run.stderr


def test_other_attributes_are_ordinary() -> None:
    assert not hasattr(load(), "divine")


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUCEBOX_GGML_LIB", str(tmp_path))
    assert library_folder() == tmp_path
    monkeypatch.delenv("LUCEBOX_GGML_LIB")
    assert library_folder().parts[-3:] == ("lucebox", "ggml", "lib")


@pytest.mark.parametrize(
    "name",
    [
        "ggml_backend_graph_compute",
        "ggml_backend_graph_compute_async",
        "ggml_backend_synchronize",
        "ggml_backend_tensor_set",
        "ggml_backend_tensor_get_async",
        "ggml_backend_buffer_clear",
        "ggml_backend_alloc_ctx_tensors_from_buft",
        "ggml_backend_buft_alloc_buffer",
        "ggml_backend_load_all_from_path",
        "ggml_backend_dev_memory",
        "ggml_backend_sched_graph_compute",
        "ggml_backend_rpc_start_server",
        "ggml_backend_buffer_get_base",
        "ggml_backend_get_default_buffer_type",
        "ggml_gallocr_alloc_graph",
        "ggml_gallocr_reserve",
        "ggml_graph_compute",
        "ggml_quantize_chunk",
    ],
)
def test_calls_that_take_long_release_the_gil(name: str) -> None:
    assert name in _api.FUNCTIONS
    assert is_blocking(name)


def test_building_a_graph_keeps_the_gil() -> None:
    operations = (
        "ggml_add",
        "ggml_mul_mat",
        "ggml_rope_ext",
        "ggml_view_3d",
        "ggml_set_rows",
        "ggml_opt_step_sgd",
    )
    others = ("ggml_build_forward_expand", "ggml_new_tensor_2d", "ggml_nbytes", "ggml_backend_dev_name")
    assert not [name for name in (*operations, *others) if is_blocking(name)]


def test_a_context_has_room_for_what_was_asked() -> None:
    library = load()
    context = library.new_context(2)
    try:
        tensors = [library.ggml_new_tensor_1d(context, _api.Type.F32, 1 << 40) for _ in range(2)]
        assert all(library.ggml_get_data(tensor) is None for tensor in tensors)
    finally:
        library.ggml_free(context)


def test_buffer_types_and_host_memory_of_the_cpu() -> None:
    library = load()
    device = library.ggml_backend_dev_by_type(_api.BackendDevType.CPU)
    assert library.can_map_host_memory(device)
    names = [
        library.ggml_backend_buft_name(buffer_type).decode()
        for buffer_type in library.extra_buffer_types(device)
    ]
    assert "CPU_REPACK" in names


def test_an_optional_procedure_may_be_absent() -> None:
    library = load()
    registry = library.ggml_backend_reg_by_name(b"CPU")
    assert library.procedure(registry, "ggml_backend_set_n_threads", _api.BackendSetNThreads) is not None
    assert library.procedure(registry, "ggml_backend_divine", _api.BackendSetNThreads) is None
