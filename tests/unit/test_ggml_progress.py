"""Progress of a build: on the terminal, though pip keeps what a package prints."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.support.source_tree import ROOT
from vendor.ggml import progress
from vendor.ggml.progress import Progress


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_terminal", lambda: None)


@pytest.mark.usefixtures("no_terminal")
def test_without_a_terminal_it_goes_to_stderr_with_the_time_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Progress().say("configuring ggml")
    assert capsys.readouterr().err == "\rlucebox [0:00] configuring ggml\n"


@pytest.mark.usefixtures("no_terminal")
def test_updates_are_not_too_many_and_messages_are_never_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Progress()
    for step in range(70):
        report.update(f"step {step}")
        now[0] += 1.0
    report.say("done")
    lines = capsys.readouterr().err.split("\n")
    assert 20 <= len(lines) <= 30
    assert lines[-2] == "\rlucebox [1:10] done"


def test_with_a_terminal_it_is_seen_though_all_output_is_caught() -> None:
    code = "from vendor.ggml.progress import Progress; Progress().say('compiling ggml: 3 of 48')"
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover (in another process)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)
        os._exit(run.returncode or len(run.stdout) or len(run.stderr))
    try:
        seen = os.read(terminal, 1000).decode()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        os.close(terminal)
    assert "lucebox [0:00] compiling ggml: 3 of 48" in seen
