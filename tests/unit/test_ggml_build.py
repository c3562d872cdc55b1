"""Where ggml's libraries come from, and what of it is cached."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from vendor.ggml import build
from vendor.ggml.errors import BuildError
from vendor.ggml.progress import Progress


class FakeCompilation:
    """Makes a library without a compiler, as often as it is asked to."""

    runs: list[Path]
    fails = False

    def __init__(self, tools: object, source: Path, work: Path, progress: Progress) -> None:
        self._source = source
        self._work = work

    def run(self, backends: Sequence[str]) -> list[Path]:
        self.runs.append(self._source)
        if self.fails:
            raise BuildError("the compiler failed")
        self._work.mkdir()
        library = self._work / "libggml-base.so"
        library.write_text(f"library {len(self.runs)} {','.join(backends)}", encoding="utf-8")
        return [library]


@pytest.fixture(autouse=True)
def compilation(monkeypatch: pytest.MonkeyPatch) -> type[FakeCompilation]:
    fresh = type("Fresh", (FakeCompilation,), {"runs": []})
    monkeypatch.setattr(build, "Compilation", fresh)
    return fresh


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name in ("include/ggml.h", "src/ggml.c", "cmake/a.cmake", "CMakeLists.txt", "LICENSE"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")
    return folder


@pytest.fixture
def environ(tmp_path: Path, source: Path) -> dict[str, str]:
    return {"LUCEBOX_CACHE": str(tmp_path / "cache"), "LUCEBOX_GGML_SOURCE": str(source)}


def test_a_build_is_made_once(
    tmp_path: Path, source: Path, environ: dict[str, str], compilation: type[FakeCompilation]
) -> None:
    for name in ("one", "two"):
        build.install(tmp_path / name, environ)
        assert {path.name for path in (tmp_path / name).iterdir()} == {"libggml-base.so", "LICENSE"}
    assert compilation.runs == [source]
    [finished] = [path for path in (tmp_path / "cache" / "builds").iterdir() if path.is_dir()]
    assert {path.name for path in finished.iterdir()} == {"lib", "include", "CMakeLists.txt", "LICENSE"}


@pytest.mark.parametrize("changed", ["include/ggml.h", "src/ggml.c", "cmake/a.cmake", "CMakeLists.txt"])
def test_another_source_is_another_build(
    tmp_path: Path, source: Path, environ: dict[str, str], compilation: type[FakeCompilation], changed: str
) -> None:
    build.install(tmp_path / "lib", environ)
    (source / changed).write_text("changed", encoding="utf-8")
    build.install(tmp_path / "lib", environ)
    assert len(compilation.runs) == 2
    assert (tmp_path / "lib" / "libggml-base.so").read_text(encoding="utf-8").startswith("library 2")


@pytest.mark.parametrize("variable", ["CXXFLAGS", "LUCEBOX_BACKENDS"])
def test_other_options_are_another_build(
    tmp_path: Path,
    environ: dict[str, str],
    compilation: type[FakeCompilation],
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build.install(tmp_path / "lib", environ)
    value = {"CXXFLAGS": "-O1", "LUCEBOX_BACKENDS": "vulkan, CUDA"}[variable]
    monkeypatch.setenv(variable, value)
    build.install(tmp_path / "lib", {**environ, variable: value})
    assert len(compilation.runs) == 2


def test_a_failed_build_is_not_kept(
    tmp_path: Path, environ: dict[str, str], compilation: type[FakeCompilation]
) -> None:
    compilation.fails = True
    with pytest.raises(BuildError, match="the compiler failed"):
        build.install(tmp_path / "lib", environ)
    assert not (tmp_path / "lib").exists()
    assert not [path for path in (tmp_path / "cache" / "builds").iterdir() if path.is_dir()]
    compilation.fails = False
    build.install(tmp_path / "lib", environ)
    assert (tmp_path / "lib").is_dir()


def test_what_a_killed_build_left_is_cleared(
    tmp_path: Path, source: Path, environ: dict[str, str], compilation: type[FakeCompilation]
) -> None:
    build.install(tmp_path / "lib", environ)
    builds = tmp_path / "cache" / "builds"
    [finished] = [path for path in builds.iterdir() if path.is_dir()]
    finished.rename(builds / f"{finished.name}.build.killed")
    build.install(tmp_path / "lib", environ)
    assert [path.name for path in builds.iterdir() if path.is_dir()] == [finished.name]


def test_of_two_at_once_one_compiles_and_both_get_the_result(
    tmp_path: Path,
    environ: dict[str, str],
    compilation: type[FakeCompilation],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, go_on = threading.Event(), threading.Event()
    run = compilation.run

    def slow(self: FakeCompilation, backends: Sequence[str]) -> list[Path]:
        started.set()
        assert go_on.wait(20)
        return run(self, backends)

    said: list[str] = []

    def say(self: Progress, message: str) -> None:
        said.append(message)
        if "waiting" in message:
            go_on.set()

    monkeypatch.setattr(compilation, "run", slow)
    monkeypatch.setattr(Progress, "say", say)
    threads = [threading.Thread(target=build.install, args=(tmp_path / f"{n}", environ)) for n in range(2)]
    threads[0].start()
    assert started.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert len(compilation.runs) == 1
    assert "waiting for another build of ggml to end" in said
    assert all((tmp_path / f"{n}" / "libggml-base.so").exists() for n in range(2))


def test_built_libraries_are_copied_as_they_are(tmp_path: Path, compilation: type[FakeCompilation]) -> None:
    own, target = tmp_path / "own", tmp_path / "lib"
    for folder in (own, target):
        folder.mkdir()
    (own / "libggml-base.so.0").write_text("base", encoding="utf-8")
    (own / "libggml-base.so").symlink_to("libggml-base.so.0")
    (own / "ggml-config.cmake").touch()
    (target / "libggml-cpu-old.so").touch()
    build.install(target, {"LUCEBOX_GGML_LIB": str(own)})
    assert {path.name for path in target.iterdir()} == {"libggml-base.so", "libggml-base.so.0"}
    assert not (target / "libggml-base.so").is_symlink()
    assert compilation.runs == []


def test_libraries_that_are_there_already_are_left_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    build.install(tmp_path / "lib", environ)
    before = (tmp_path / "lib").stat().st_ino
    build.install(tmp_path / "lib", environ)
    assert (tmp_path / "lib").stat().st_ino == before
    (tmp_path / "lib" / "libggml-base.so").write_text("damaged", encoding="utf-8")
    build.install(tmp_path / "lib", environ)
    assert (tmp_path / "lib" / "libggml-base.so").read_text(encoding="utf-8") == "library 1 "


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"LUCEBOX_BACKENDS": "cuda,abacus"}, "names abacus; it may name blas, cuda, hip, metal"),
        ({"LUCEBOX_GGML_LIB": "/nowhere"}, "LUCEBOX_GGML_LIB=/nowhere is not a folder"),
        ({"LUCEBOX_GGML_SOURCE": "/nowhere"}, "LUCEBOX_GGML_SOURCE=/nowhere is not a folder"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    tmp_path: Path, setting: dict[str, str], message: str
) -> None:
    with pytest.raises(BuildError, match=re.escape(message)):
        build.install(tmp_path / "lib", setting)


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not a folder of built ggml libraries"):
        build.install(tmp_path / "lib", {"LUCEBOX_GGML_LIB": str(tmp_path)})
    with pytest.raises(BuildError, match=r"no include/ggml\.h"):
        build.install(
            tmp_path / "lib", {"LUCEBOX_GGML_SOURCE": str(tmp_path), "LUCEBOX_CACHE": str(tmp_path / "cache")}
        )


def test_without_a_compiler_the_prebuilt_wheel_is_taken_and_its_cost_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilation: type[FakeCompilation]
) -> None:
    said: list[str] = []

    def fetch_wheel(pin: object, folder: Path) -> Path:
        import zipfile

        with zipfile.ZipFile(folder / "ggml.whl", "w") as archive:
            for name in (
                "libggml-base.so",
                "libggml-base.so.0",
                "libggml-base.so.0.20.2",
                "libggml.so",
                "cmake/x",
            ):
                archive.writestr(f"libggml/lib64/{name}", name)
        return folder / "ggml.whl"

    monkeypatch.setattr(build, "has_compiler", lambda: False)
    monkeypatch.setattr(build.Pin, "fetch_wheel", fetch_wheel)
    monkeypatch.setattr(Progress, "say", lambda self, message: said.append(message))
    build.install(tmp_path / "lib", {"LUCEBOX_CACHE": str(tmp_path / "cache")})
    assert {path.name for path in (tmp_path / "lib").iterdir()} == {
        "libggml-base.so",
        "libggml-base.so.0",
        "libggml.so",
    }
    assert len([message for message in said if "several times as long" in message]) == 1
    assert compilation.runs == []
