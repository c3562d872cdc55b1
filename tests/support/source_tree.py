"""What the tests of structure know of the repository: its files, and who imports whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "lucebox"


def modules() -> dict[str, Path]:
    """Every module of lucebox by dotted name below `lucebox.`; the package's own __init__ is ''."""
    return {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """(line, module) for each import of lucebox in the file, also inside functions and under TYPE_CHECKING.

    Modules are named as in `modules`; `from lucebox.x import y` means the module x.y where there is one.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "lucebox":
                    yield node.lineno, alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            top, _, below = (node.module or "").partition(".")
            if top == "lucebox":
                for alias in node.names:
                    inner = f"{below}.{alias.name}".lstrip(".")
                    yield node.lineno, inner if inner in known else below
