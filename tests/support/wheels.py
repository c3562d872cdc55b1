"""A model cut into tiny wheels: a package index in a directory, as pip sees it with --find-links."""

from __future__ import annotations

import hashlib
import shutil
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lucebox.errors import DownloadError
from lucebox.hub.catalogue import CatalogueModel, Package


def make_index(directory: Path, content: bytes, *, n_parts: int = 3) -> CatalogueModel:
    """Writes the wheels of `content` into `directory` and returns the catalogue's entry for it."""
    directory.mkdir(parents=True, exist_ok=True)
    size = -(-len(content) // n_parts)
    packages = []
    for index in range(n_parts):
        name = f"lucebox-test-part{index + 1}"
        module = name.replace("-", "_")
        package = Package(name, "1.0", f"{module}/data/part{index + 1:02}.bin")
        write_wheel(directory, package, content[index * size : (index + 1) * size])
        packages.append(package)
    return CatalogueModel(
        name="tiny-test",
        title="Tiny",
        licence="none",
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        packages=tuple(packages),
    )


def wheel_path(directory: Path, package: Package) -> Path:
    return directory / f"{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl"


def write_wheel(directory: Path, package: Package, content: bytes) -> None:
    info = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    with zipfile.ZipFile(wheel_path(directory, package), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(package.member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@dataclass
class CopyFetcher:
    """Fetches by copying from an index directory, and notes what was asked for."""

    index: Path
    before: Callable[[Package], None] = lambda package: None
    fetched: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def fetch(self, package: Package, directory: Path) -> Path:
        self.before(package)
        source = wheel_path(self.index, package)
        if not source.exists():
            raise DownloadError(f"{package.requirement} could not be fetched", remedy="try again")
        self.fetched.append(package.name)
        return Path(shutil.copy(source, directory))

    def stop(self) -> None:
        self.stopped.set()
