"""The README's strategy of 20 lines: it is what the README says, and its check runs as it stands there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.readme import README, code
from tests.support.readme_code import write_readme_code
from tests.support.source_tree import ROOT


def run(folder: Path, program: str) -> str:
    environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, "-W", "error", program]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout


def test_the_strategy_and_its_check(tmp_path: Path) -> None:
    write_readme_code(tmp_path, "textbook.py", "check.py")
    out = run(tmp_path, "check.py")
    assert out.startswith("exact; a careless rule is off by ")
    assert " 0\n" not in out


def test_it_has_20_lines_at_most() -> None:
    text = code("textbook.py", README.read_text(encoding="utf-8"))
    assert 10 < len([line for line in text.splitlines() if line.strip()]) <= 20


def test_the_package_names_the_strategy() -> None:
    text = README.read_text(encoding="utf-8")
    project = tomllib.loads(code("pyproject.toml", text))
    module, _, name = project["project"]["entry-points"]["lucebox.acceptance"]["textbook"].partition(":")
    assert f"{module}.py" == "textbook.py"
    classes = [n.name for n in ast.walk(ast.parse(code("textbook.py", text))) if isinstance(n, ast.ClassDef)]
    assert classes == [name]
