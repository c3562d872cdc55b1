"""The README's programs, as files."""

from __future__ import annotations

from pathlib import Path

from tests.support.readme import README, code


def write_readme_code(folder: Path, *names: str) -> None:
    """Writes the code blocks of these names, which are file names, into `folder`."""
    text = README.read_text(encoding="utf-8")
    for name in names:
        (folder / name).write_text(code(name, text) + "\n", encoding="utf-8")
