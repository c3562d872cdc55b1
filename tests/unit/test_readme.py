"""What the README says is what the code does: flags, commands, names, files."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

import lucebox
from lucebox import acceptance, draft_length, drafters, flags
from lucebox.bench.workloads import GRID, MAKERS
from lucebox.cli.main import COMMANDS, parser
from lucebox.config import ServerOptions
from lucebox.hub import CATALOGUE
from lucebox.sampling.params import SamplingParams
from tests.support.readme import README, between, code, generated
from tests.support.source_tree import PACKAGE, ROOT
from vendor.ggml.compilation import BACKENDS

TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", generated())
def test_generated_parts_are_up_to_date(name: str) -> None:
    assert between(name, TEXT) == generated()[name], "run python -m tests.support.readme"


def test_the_two_lines() -> None:
    start, test = code("start line", TEXT), code("test line", TEXT)
    for line in (start, test):
        assert "\n" not in line
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert start.endswith(" && .venv/bin/python -m lucebox.server")
    assert test.endswith(" && .venv/bin/python -m pytest")


def test_every_command_is_listed_and_exists() -> None:
    listed = re.findall(r"^\| `lucebox (\w+)", TEXT, re.MULTILINE)
    assert listed == list(COMMANDS)
    mentioned = set(re.findall(r"`lucebox (\w+)", TEXT))
    assert mentioned <= set(COMMANDS) | {"COMMAND"}


def test_every_flag_mentioned_exists() -> None:
    known = {setting.option for setting in flags.settings(ServerOptions)} | {"--help"}
    known |= options_of(parser())
    for path in (PACKAGE / "bench").glob("*.py"):
        known |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', path.read_text(encoding="utf-8")))
    ours = re.sub(r"^```dockerfile\n.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    mentioned = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", ours))
    assert mentioned
    assert mentioned <= known


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Those of its verbs and of their kinds, too."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for inner in action.choices.values() for option in options_of(inner)}
    return found


def test_every_variable_mentioned_exists() -> None:
    known = {setting.variable for setting in flags.settings(ServerOptions)} | set(flags.OTHER_VARIABLES)
    assert set(re.findall(r"LUCEBOX_[A-Z_]+", TEXT)) <= known


def test_every_backend_that_can_be_built_is_named() -> None:
    devices = between_headings("## Devices", "### Which device")
    assert set(re.findall(r"`([a-z]+)`", devices)) == set(BACKENDS)
    examples = re.findall(r"LUCEBOX_BACKENDS=([\w,]+)", devices)
    assert examples
    assert all(set(example.split(",")) <= set(BACKENDS) for example in examples)


def test_every_file_mentioned_exists() -> None:
    drawing = between_headings("### Where things are", "### Adding things")
    names = re.findall(r"(?<![\w/.*])([\w./]+(?:/|\.py))(?=[\s:])", drawing)
    assert len(names) > 15
    tiers = {"unit/", "ggml/", "real/", "device/"}
    missing = [
        name
        for name in names
        if not (PACKAGE / name).exists()
        and not (ROOT / name).exists()
        and not (ROOT / "vendor" / "ggml" / name).exists()
        and not (name in tiers and (ROOT / "tests" / name).exists())
    ]
    assert not missing
    for path in re.findall(r"`((?:lucebox|tests|kernels|vendor)/[\w./]+\.\w+)`", TEXT):
        assert (ROOT / path).is_file() or Path(path).stem in ("ARCH", "NAME"), path


def between_headings(first: str, second: str) -> str:
    return TEXT[TEXT.index(first) : TEXT.index(second)]


def test_every_package_is_in_the_drawing() -> None:
    drawing = between_headings("### Where things are", "### Adding things")
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert not [name for name in packages if f"{name}/" not in drawing]
    top_level = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not [name for name in top_level if name not in drawing]


@pytest.mark.parametrize("package", [acceptance, draft_length, drafters])
def test_every_plugin_is_described(package: ModuleType) -> None:
    assert not [name for name in package.names() if not re.search(rf"`{name}[`:]", TEXT)]


def test_every_workload_is_described() -> None:
    described = between_headings("Workloads (`--workloads`)", "Each round asks")
    assert not [name for name in (*MAKERS, GRID) if f"`{name}`" not in described]


def test_python_examples_parse_and_use_public_names() -> None:
    examples = [ast.parse(block) for block in blocks("python")]
    imported = [
        alias.name
        for tree in examples
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "lucebox"
        for alias in node.names
    ]
    assert imported
    assert set(imported) <= set(lucebox.__all__)


def test_shell_examples_are_shell() -> None:
    for block in blocks("sh"):
        assert shlex.split(block)


def test_models_and_defaults_are_the_codes() -> None:
    assert all(f"`{name}`" in TEXT for name in CATALOGUE)
    default = SamplingParams()
    assert (default.temperature, default.top_p, default.top_k, default.min_p) == (1.0, 1.0, 0, 0.0)
    assert "`temperature` 1, `top_p` 1, everything else off" in TEXT


def test_licence_and_changelog() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_lines_fit_a_screen() -> None:
    prose = re.sub(r"^\|.*$|^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert not [line for line in prose.splitlines() if len(line) > 145]


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_contents_and_links_lead_somewhere() -> None:
    headings = re.findall(
        r"^#{2,4} (.+)$", re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    linked = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert linked <= {anchor(heading) for heading in headings}
    chapters = {anchor(heading) for heading in re.findall(r"^## (.+)$", TEXT, re.MULTILINE)}
    assert chapters <= linked
