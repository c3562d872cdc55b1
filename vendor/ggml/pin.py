"""Which ggml Lucebox is built with, from the file PIN, and getting exactly that through pip."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vendor.ggml.errors import BuildError

PIN = Path(__file__).with_name("PIN")

# pip wants the metadata of an sdist that it downloads, and would fetch and run the package's build tools.
# This stands in for them: it states what PIN already says.
_METADATA_BACKEND = """
import os, pathlib

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    name, version = os.environ["PINNED_PACKAGE"], os.environ["PINNED_VERSION"]
    info = pathlib.Path(directory, f"{name.replace('-', '_')}-{version}.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name

def build_wheel(directory, config_settings=None, metadata_directory=None):
    raise NotImplementedError("for metadata only")
"""


@dataclass(frozen=True, slots=True)
class Pin:
    """One release of the PyPI package that carries ggml."""

    package: str
    version: str
    sha256: str
    wheel_sha256: tuple[str, ...]

    @classmethod
    def read(cls, path: Path = PIN) -> Self:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(values["package"], values["version"], values["sha256"], tuple(values["wheel_sha256"]))

    def fetch_source(self, folder: Path, pip_args: Sequence[str] = ()) -> Path:
        """Downloads the sdist into `folder`. Raises BuildError, also when its hash is not the pinned one."""
        with tempfile.TemporaryDirectory() as backend:
            package = Path(backend, "scikit_build_core")
            package.mkdir()
            (package / "__init__.py").touch()
            (package / "build.py").write_text(_METADATA_BACKEND, encoding="utf-8")
            path = os.pathsep.join(filter(None, [backend, os.environ.get("PYTHONPATH")]))
            environment = {"PYTHONPATH": path, "PINNED_PACKAGE": self.package, "PINNED_VERSION": self.version}
            arguments = ["--no-binary", ":all:", "--no-build-isolation", *pip_args]
            return self._download(folder, arguments, environment, (self.sha256,))

    def fetch_wheel(self, folder: Path, pip_args: Sequence[str] = ()) -> Path:
        """Downloads the wheel for this Python and machine. Raises BuildError, also for an unknown hash."""
        return self._download(folder, ["--only-binary", ":all:", *pip_args], {}, self.wheel_sha256)

    def _download(
        self, folder: Path, arguments: Sequence[str], environment: dict[str, str], hashes: Sequence[str]
    ) -> Path:
        requirement = f"{self.package}=={self.version}"
        with tempfile.TemporaryDirectory(dir=folder) as download:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", *arguments]
            command += [
                "--no-input",
                "--disable-pip-version-check",
                "--quiet",
                "--dest",
                download,
                requirement,
            ]
            run = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
            )
            files = list(Path(download).iterdir())
            if run.returncode or len(files) != 1:
                raise BuildError(
                    f"pip could not download {requirement}:\n{run.stderr.strip()}\n"
                    "Check the network and pip's index settings, or set LUCEBOX_GGML_SOURCE (a checkout) "
                    "or LUCEBOX_GGML_LIB (a folder of built libraries)."
                )
            _verify(files[0], hashes)
            return files[0].replace(folder / files[0].name)


def _verify(path: Path, hashes: Sequence[str]) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found not in hashes:
        raise BuildError(
            f"{path.name} has sha256 {found}, which vendor/ggml/PIN does not list: it is not the file that "
            "Lucebox was made for, and is not used. Check the index that pip downloads from."
        )
