"""`lucebox bench spec` on a real model: its smallest run, from the command line to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox.cli import main

ARMS = ("model/fixed:n=2", "suffix/fixed:n=4")


def test_one_workload_by_two_arms(
    model_path: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, file = str(model_path("smollm2-135m")), tmp_path / "out.json"
    argv = ["bench", "spec", "--target-model", model, "--draft-model", model, "--threads", "2"]
    argv += ["--ctx-size", "256", "--workloads", "grid-64-16", "--rounds", "1", "--json", str(file)]
    for arm in ARMS:
        argv += ["--arm", arm]
    assert main(argv) == 0
    assert "grid-64-16: 1 prompt of 64 tokens, up to 16 generated, temperature 0" in capsys.readouterr().out
    found = json.loads(file.read_text())
    [workload] = found["workloads"]
    plain, model_arm, suffix = workload["arms"]
    assert [plain["arm"], model_arm["arm"], suffix["arm"]] == ["plain", *ARMS]
    assert model_arm["acceptance_rate"] > 0.2  # it guesses for itself, re-quantised to be faster
    assert model_arm["mean_acceptance_length"] > 1.4
    assert plain["acceptance_rate"] == 0.0
    for sample in found["samples"]:
        assert sample["timings"]["predicted_n"] == 16
        assert sample["timings"]["prompt_n"] == 64
        spent_ms = sample["timings"]["prompt_ms"] + sample["timings"]["predicted_ms"]
        assert spent_ms <= sample["wall_ms"] < spent_ms + 1000.0
