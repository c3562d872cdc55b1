"""The README's systemd unit and Dockerfile, as far as they can be tried without a service manager."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.readme import README
from tests.support.source_tree import PACKAGE, ROOT

TEXT = README.read_text(encoding="utf-8")
INSTRUCTIONS = {"FROM", "RUN", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "lucebox.service"
    unit.write_text(block("ini").replace("/opt/lucebox/bin/lucebox", sys.executable))
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in run.stderr.splitlines() if "lucebox.service" in line]
    assert complaints == []
    assert run.returncode == 0, run.stderr


def test_the_units_variables_are_settings() -> None:
    assert "LUCEBOX_API_KEY_FILE=%d/api-keys" in block("ini")
    assert "LoadCredential=api-keys:" in block("ini")


def test_the_dockerfile_is_one() -> None:
    lines = block("dockerfile").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line]
    assert {name for name, _ in steps} <= INSTRUCTIONS
    for name, rest in steps:
        if name == "RUN":
            subprocess.run(["sh", "-nc", rest], check=True)
        if name in ("ENTRYPOINT", "HEALTHCHECK"):
            command = json.loads(rest[rest.index("[") :])
            assert all(isinstance(word, str) for word in command)
            if "-c" in command:
                ast.parse(command[-1])
    users = [rest for name, rest in steps if name == "USER"]
    assert users == ["lucebox"]


def test_the_image_gets_all_sources_and_nothing_built() -> None:
    needed = [ROOT / name for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")]
    needed += PACKAGE.rglob("*.py")
    needed += (PACKAGE / "server" / "static").iterdir()
    needed += [path for kind in ("pyx", "pxd", "h") for path in (ROOT / "kernels").glob(f"*.{kind}")]
    needed += [path for path in (ROOT / "vendor").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(needed) > 100
    assert [path for path in needed if is_ignored(path.relative_to(ROOT))] == []
    built = (
        "lucebox/ggml/lib/libggml.so",
        "lucebox/_kernels/mask.so",
        "kernels/mask.c",
        "build/x",
        ".venv/x",
    )
    assert all(is_ignored(Path(path)) for path in built)


def is_ignored(path: Path) -> bool:
    """Whether .dockerignore keeps the file, or a folder that it is in, from Docker."""
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    return any(
        fnmatch(folder.name if pattern.startswith("**/") else str(folder), pattern.removeprefix("**/"))
        for folder in (path, *path.parents)
        for pattern in patterns
    )
