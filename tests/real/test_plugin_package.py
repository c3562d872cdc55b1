"""A package apart from Lucebox, built, installed and found by its entry points, on a real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.readme_code import write_readme_code
from tests.support.source_tree import ROOT

MODEL = "smollm2-135m"
MORE_ENTRY_POINTS = """
[project.entry-points."lucebox.drafters"]
echo = "echo:Echo"

[project.entry-points."lucebox.draft_length"]
timid = "echo:Timid"
"""
ECHO = '''
from lucebox.core import Draft
from lucebox.draft_length import DraftLengthController
from lucebox.draft_length.base import Plan
from lucebox.drafters import Drafter


class Echo(Drafter):
    """Guesses that the last tokens come again."""

    def __init__(self, context, *, n: int = 3):
        super().__init__(context)
        self.n = n

    def propose(self, requests):
        drafts = []
        for request in requests:
            tokens = list(request.prefix[-self.n:])[: request.n_max]
            drafts.append(Draft.chain(tokens, [None] * len(tokens)))
        return drafts

    def release(self, sequence):
        pass


class Timid(DraftLengthController):
    """Guesses two tokens, by whoever is at hand."""

    def plan(self, batch, costs):
        return {state.sequence: Plan(state.drafters[0], 2) for state in batch}
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's package is installed, with a drafter and a controller besides."""
    source, target = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    write_readme_code(source, "textbook.py", "pyproject.toml", "trace.py", "check.py")
    project = source / "pyproject.toml"
    text = project.read_text().replace('["textbook"]', '["textbook", "echo"]')
    project.write_text(text + MORE_ENTRY_POINTS)
    (source / "echo.py").write_text(ECHO)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    (target / "trace.py").write_text((source / "trace.py").read_text())
    return target


def run(site: Path, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def generate(site: Path, folder: Path, *arguments: str) -> dict[str, object]:
    fixed = ["--json", "--temperature", "1", "--seed", "3", "--max-tokens", "16", "--threads", "1"]
    prompt = "one two three one two three one two three one"
    done = run(site, ["-m", "lucebox", "generate", *fixed, *arguments, prompt], folder)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_its_strategy_judges_a_real_model(
    site: Path, tmp_path: Path, model_path: Callable[[str], Path]
) -> None:
    model = str(model_path(MODEL))
    models = ["--target-model", model, "--draft-model", model, "--draft-quant", "keep", "--ctx-size", "256"]
    answer = generate(site, tmp_path, *models, "--acceptance", "textbook", "--draft-length", "fixed:n=4")
    timings = answer["timings"]
    assert isinstance(timings, dict)
    assert len(answer["tokens"]) <= 16  # type: ignore[arg-type]
    assert timings["draft_n_accepted"] / timings["draft_n"] > 0.8, "a model that drafts for itself"


def test_its_drafter_and_its_controller_run_too(
    site: Path, tmp_path: Path, model_path: Callable[[str], Path]
) -> None:
    models = ["--target-model", str(model_path(MODEL)), "--draft-model", "none", "--ctx-size", "256"]
    plain = generate(site, tmp_path, *models, "--acceptance", "match", "--drafter", "none")
    answer = generate(
        site, tmp_path, *models, "--acceptance", "match", "--drafter", "echo:n=2", "--draft-length", "timid"
    )
    timings = answer["timings"]
    assert isinstance(timings, dict)
    assert 0 < timings["draft_n"] <= 2 * timings["n_rounds"]
    assert answer["tokens"] == plain["tokens"], "`match` says what plain decoding with this seed says"


def test_a_package_that_is_not_there_is_said_to_be_unknown(tmp_path: Path) -> None:
    arguments = ["-m", "lucebox", "generate", "--acceptance", "textbook", "--draft-model", "none", "x"]
    done = run(tmp_path, arguments, tmp_path)
    assert done.returncode == 2
    assert "Unknown acceptance 'textbook'" in done.stderr


def test_the_readme_s_trace_runs(site: Path, tmp_path: Path, model_path: Callable[[str], Path]) -> None:
    """As it stands there, but for the models."""
    text = (site / "trace.py").read_text()
    for name in ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"):
        assert name in text
        text = text.replace(name, str(model_path(MODEL)))
    (tmp_path / "run.py").write_text(text)
    done = run(site, ["run.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == ["block", "token", "gumbel", "match"]
    expected = [float(line.split()[1]) for line in lines[:-1]]
    assert expected == sorted(expected, reverse=True)
    assert float(lines[-1]) > 0
    assert (tmp_path / "code.trace").stat().st_size > 10_000
