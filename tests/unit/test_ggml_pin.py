"""Fetching exactly the pinned ggml: through pip, from an index in a folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from lucebox.hub.catalogue import Package
from tests.support.wheels import write_wheel
from vendor.ggml.errors import BuildError
from vendor.ggml.pin import Pin

_PACKAGE = "lucebox-pin-test"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index with an sdist whose build tools do not exist, and a wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["none"]\nbuild-backend = "scikit_build_core.build"\n',
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: 1.0\n",
        "ggml/include/ggml.h": "// ggml\n",
    }
    with tarfile.open(folder / "lucebox_pin_test-1.0.tar.gz", "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"lucebox_pin_test-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    write_wheel(folder, Package(_PACKAGE, "1.0", "libggml/lib/libggml-base.so"), b"a library")
    return folder


def pip_args(index: Path) -> list[str]:
    return ["--no-index", "--find-links", str(index)]


def pin_of(index: Path) -> Pin:
    hashes = {path.suffix: hashlib.sha256(path.read_bytes()).hexdigest() for path in index.iterdir()}
    return Pin(_PACKAGE, "1.0", hashes[".gz"], ("0" * 64, hashes[".whl"]))


def test_the_pin_is_of_one_release() -> None:
    pin = Pin.read()
    assert pin.package == "libggml-python"
    assert all(len(digest) == 64 for digest in (pin.sha256, *pin.wheel_sha256))
    assert len(set(pin.wheel_sha256)) == len(pin.wheel_sha256) == 12


def test_the_source_is_fetched_without_its_build_tools(index: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    archive = pin_of(index).fetch_source(target, pip_args(index))
    assert archive == target / "lucebox_pin_test-1.0.tar.gz"
    assert list(target.iterdir()) == [archive]


def test_the_wheel_is_one_of_those_pinned(index: Path, tmp_path: Path) -> None:
    assert pin_of(index).fetch_wheel(tmp_path, pip_args(index)).suffix == ".whl"


def test_another_hash_is_refused_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    pin = Pin(_PACKAGE, "1.0", "0" * 64, ("1" * 64,))
    with pytest.raises(BuildError, match=r"lucebox_pin_test-1\.0\.tar\.gz has sha256 .* does not list"):
        pin.fetch_source(target, pip_args(index))
    with pytest.raises(BuildError, match=r"\.whl has sha256 .* does not list"):
        pin.fetch_wheel(target, pip_args(index))
    assert not list(target.iterdir())


def test_what_pip_says_is_passed_on(index: Path, tmp_path: Path) -> None:
    pin = Pin(_PACKAGE, "2.0", "0" * 64, ())
    with pytest.raises(BuildError, match=r"(?s)No matching distribution.*LUCEBOX_GGML_SOURCE"):
        pin.fetch_source(tmp_path, pip_args(index))
