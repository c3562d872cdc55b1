"""Imports point one way, files stay small, and no module keeps state. The picture is in the README."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, ROOT, imports, modules

# Lowest first. A module imports from its own unit and from lower layers, never sideways or up.
# A name stands for a module or a package with all below it; the longest match counts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    (
        "cache_file",
        "common_prefix",
        "core",
        "cores",
        "flags",
        "grammar",
        "host_memory",
        "logs",
        "paths",
        "plugins",
        "terminal",
    ),
    ("engine_options",),
    ("access_rules", "config", "hub", "wire", "_kernels"),
    ("ggml", "gguf", "pinning"),
    ("text",),
    ("gguf.conversion", "gguf.packing"),
    ("gguf.copy", "gguf.weights"),
    ("gguf.placement",),
    ("models",),
    ("runtime",),
    ("sampling",),
    ("acceptance", "drafters", "draft_length", "worker"),
    ("engine",),
    ("resolve", "progress"),
    ("text.chat",),
    ("api",),
    ("",),
    ("server", "bench", "research"),
    ("cli",),
    ("__main__",),
)
# Smaller worlds than their layer would allow.
ONLY: dict[str, tuple[str, ...]] = {
    "core": (),
    "hub": ("errors", "paths"),
    "plugins": ("errors",),
    "_kernels": (),
    "grammar": (),
    "sampling.params": ("errors", "grammar"),
}
# The server's process must survive ggml: it reaches the engine through its client alone.
NOT_IN_THE_SERVER = (
    "ggml",
    "worker",
    "gguf.conversion",
    "gguf.packing",
    "gguf.copy",
    "gguf.weights",
    "gguf.placement",
    "models",
    "runtime",
    "api",
)
MAX_LINES = 400
MAX_FUNCTION_LINES = 60
GENERATED = {PACKAGE / "ggml" / "_api.py"}

UNITS = {unit: level for level, layer in enumerate(LAYERS) for unit in layer}
MODULES = modules()


def unit_of(module: str) -> str:
    while module not in UNITS:
        assert "." in module, f"{module} is in no layer: add it to LAYERS and to the README's drawing"
        module = module.rpartition(".")[0]
    return module


def test_every_layer_exists() -> None:
    missing = [unit for unit in UNITS if unit not in MODULES and not (PACKAGE / unit).is_dir()]
    assert not missing


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    here = unit_of(module)
    wrong = [
        f"{MODULES[module]}:{line}: {module or 'lucebox'} imports {other}"
        for line, other in imports(MODULES[module], MODULES)
        if unit_of(other) != here and UNITS[unit_of(other)] >= UNITS[here]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", [m for m in MODULES if any(m == o or m.startswith(o + ".") for o in ONLY)])
def test_small_worlds_stay_small(module: str) -> None:
    world = max((o for o in ONLY if module == o or module.startswith(o + ".")), key=len)
    wrong = [
        f"{MODULES[module]}:{line}: {module} imports {other}"
        for line, other in imports(MODULES[module], MODULES)
        if unit_of(other) not in ONLY[world] and not (other == world or other.startswith(world + "."))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", [m for m in MODULES if unit_of(m) == "server"])
def test_the_server_leaves_ggml_to_the_engine(module: str) -> None:
    found = [other for _, other in imports(MODULES[module], MODULES) if unit_of(other) in NOT_IN_THE_SERVER]
    assert not found


def test_importing_the_server_imports_no_ggml() -> None:
    code = "import sys, lucebox.server; print(*[m for m in sys.modules if m.startswith('lucebox.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = [module.removeprefix("lucebox.") for module in run.stdout.split()]
    assert "server" in loaded
    assert not [module for module in loaded if unit_of(module) in NOT_IN_THE_SERVER]


def sources() -> list[Path]:
    folders = (PACKAGE, ROOT / "kernels", ROOT / "vendor", ROOT / "tests")
    files = [path for folder in folders for kind in ("*.py", "*.pyx", "*.pxd") for path in folder.rglob(kind)]
    return sorted(set(files) - GENERATED)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES
    if path.suffix != ".py":
        return
    long = [
        f"{path}:{node.lineno}: {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("module", MODULES)
def test_no_global_statement(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Global)]
