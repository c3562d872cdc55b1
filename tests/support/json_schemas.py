"""Schemas of the public JSON-Schema-Test-Suite, which the source distribution of `jsonschema` carries."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucebox.paths import cache_dir

PACKAGE, VERSION = "jsonschema", "4.23.0"
SHA256 = "d71497fef26351a33265337fa77ffeb82423f3ea21283cd9467bb03999266bc4"
FOLDER = f"{PACKAGE}-{VERSION}/json/tests/draft2020-12/"


@dataclass(frozen=True, slots=True)
class SuiteSchema:
    """One schema, which the suite describes, as in `minLength: minLength validation`."""

    name: str
    schema: dict[str, Any] | bool


def suite() -> list[SuiteSchema]:
    """All schemas of draft 2020-12 but the optional ones, in the order of the files. Fetched once."""
    found = []
    with tarfile.open(_archive()) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file = member.name.removeprefix(FOLDER)
            if file == member.name or "/" in file or not file.endswith(".json"):
                continue
            content = archive.extractfile(member)
            assert content is not None
            for group in json.load(content):
                found.append(
                    SuiteSchema(f"{file.removesuffix('.json')}: {group['description']}", group["schema"])
                )
    return found


def _archive() -> Path:
    path = cache_dir() / "tests" / f"{PACKAGE}-{VERSION}.tar.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
            command += ["--no-binary", PACKAGE, f"{PACKAGE}=={VERSION}"]
            subprocess.run(command, check=True, timeout=300)
            (Path(folder) / path.name).replace(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == SHA256, f"{path} is damaged: delete it"
    return path
