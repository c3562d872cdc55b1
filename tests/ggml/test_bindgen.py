"""The committed ctypes table against ggml's headers, and against what a C compiler makes of them."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from lucebox.ggml import _api
from vendor.ggml import bindgen, build
from vendor.ggml.progress import Progress


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ggml's source, from the cache of its build or fetched as a build would."""
    return build.checkout(build.Settings.read(os.environ), tmp_path_factory.mktemp("ggml"), Progress())


@pytest.fixture(scope="module")
def api(source: Path) -> bindgen.Api:
    return bindgen.parse(source)


def test_the_committed_table_is_what_the_headers_generate(api: bindgen.Api) -> None:
    assert bindgen.OUTPUT.read_text(encoding="utf-8") == bindgen.render(api), "run vendor/ggml/bindgen.py"


def test_check_fails_on_a_difference_and_writes_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "_api.py"
    stale.write_text("VERSION = 'old'\n", encoding="utf-8")
    monkeypatch.setattr(bindgen, "OUTPUT", stale)
    assert bindgen.main([str(source), "--check"]) == 1
    assert stale.read_text(encoding="utf-8") == "VERSION = 'old'\n"
    assert bindgen.main([str(source)]) == 0
    assert bindgen.main([str(source), "--check"]) == 0


def test_the_compiler_agrees_on_sizes_offsets_and_values(
    api: bindgen.Api, source: Path, tmp_path: Path
) -> None:
    expected: dict[str, int] = {}
    for c_name, members in api.enums.items():
        enum = getattr(_api, bindgen.class_name(c_name))
        for member, name in bindgen.member_names(members).items():
            expected[f"(long) {member}"] = enum[name]
    for c_name, fields in api.structs.items():
        struct = getattr(_api, bindgen.class_name(c_name))
        c_type = c_name if c_name.endswith("_t") else f"struct {c_name}"
        expected[f"sizeof({c_type})"] = ctypes.sizeof(struct)
        for name, _ in fields:
            expected[f"offsetof({c_type}, {name})"] = getattr(struct, name).offset
            expected[f"sizeof((({c_type} *) 0)->{name})"] = getattr(struct, name).size
    expected.update({f"(long) {name}": value for name, value in api.constants.items()})
    assert len(expected) > 400
    assert _values(list(expected), source / "include", tmp_path) == expected


def _values(expressions: list[str], include: Path, folder: Path) -> dict[str, int]:
    lines = ["#include <stdio.h>", "#include <stddef.h>", *(f'#include "{name}"' for name in bindgen.HEADERS)]
    prints = [f'printf("%ld\\n", (long) ({expression}));' for expression in expressions]
    (folder / "probe.c").write_text(
        "\n".join([*lines, "int main(void) {", *prints, "return 0; }"]), encoding="utf-8"
    )
    probe = folder / "probe"
    subprocess.run(["cc", "-w", "-I", str(include), "-o", str(probe), str(folder / "probe.c")], check=True)
    out = subprocess.run([str(probe)], capture_output=True, text=True, check=True).stdout
    return dict(zip(expressions, map(int, out.split()), strict=True))


def test_every_function_but_those_with_varargs_is_bound(api: bindgen.Api, source: Path) -> None:
    text = bindgen.preprocess(source / "include")
    assert {function.name for function in api.functions} == set(_api.FUNCTIONS)
    for name in (
        "ggml_mul_mat",
        "ggml_gallocr_new",
        "ggml_backend_graph_compute",
        "ggml_backend_rpc_start_server",
    ):
        assert name in _api.FUNCTIONS
    assert "ggml_format_name" in text
    assert "ggml_format_name" not in _api.FUNCTIONS


def test_pointers_are_addresses_but_constant_text_is_bytes() -> None:
    assert _api.FUNCTIONS["ggml_add"] == (ctypes.c_void_p, (ctypes.c_void_p,) * 3, "ggml")
    assert _api.FUNCTIONS["ggml_backend_dev_name"] == (ctypes.c_char_p, (ctypes.c_void_p,), "ggml")
    assert _api.FUNCTIONS["ggml_cpu_has_avx2"] == (ctypes.c_int, (), "cpu")


def test_enum_members_lose_what_they_share_but_never_begin_with_a_digit() -> None:
    assert bindgen.member_names({"A_KIND_X": 0, "A_KIND_Y_Z": 1}) == {"A_KIND_X": "X", "A_KIND_Y_Z": "Y_Z"}
    assert bindgen.member_names({"A_AXIS_0": 0, "A_AXIS_N": 1}) == {
        "A_AXIS_0": "AXIS_0",
        "A_AXIS_N": "AXIS_N",
    }


def test_a_type_that_is_not_understood_is_named(tmp_path: Path) -> None:
    include = tmp_path / "include"
    include.mkdir()
    for header in bindgen.HEADERS:
        (include / header).write_text("", encoding="utf-8")
    (include / "ggml.h").write_text("long double ggml_wide(void);\n", encoding="utf-8")
    versions = "set(GGML_VERSION_MAJOR 1)\nset(GGML_VERSION_MINOR 2)\nset(GGML_VERSION_PATCH 3)\n"
    (tmp_path / "CMakeLists.txt").write_text(versions, encoding="utf-8")
    with pytest.raises(ValueError, match="'long double'"):
        bindgen.parse(tmp_path)
