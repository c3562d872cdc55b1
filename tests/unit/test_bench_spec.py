"""`lucebox bench spec` over an engine of known speeds: order, requests, tables, JSON, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lucebox.bench import arms, dequantised, human_eval, spec
from lucebox.bench.human_eval import Problem
from lucebox.bench.workloads import Case, Workload
from lucebox.cli import main
from lucebox.config import EngineOptions
from lucebox.engine.timings import Timings
from lucebox.errors import EngineError
from lucebox.sampling.params import SamplingParams
from tests.support.bench_engine import ScriptedBench, drafted
from tests.support.tiny_models import write_tiny

MODELS = ("--target-model", "t.gguf", "--draft-model", "d.gguf")


def speed(params: SamplingParams) -> float:
    if params.speculative.enabled is False:
        return 20.0
    return 10.0 if params.speculative.draft_length == "fixed:n=3" else 16.0


def guessed(params: SamplingParams) -> Timings:
    return Timings() if params.speculative.enabled is False else drafted(10, 2, (8, 4))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ScriptedBench:
    """The engine that the command gets, and its clock."""
    fake = ScriptedBench(ms_per_token=speed, guessed=guessed)

    def from_options(options: EngineOptions, *, remembers: bool, **_: object) -> ScriptedBench:
        fake.info.options, fake.info.remembers = options, remembers
        return fake

    monkeypatch.setattr("lucebox.api.Engine", SimpleNamespace(from_options=from_options))
    monkeypatch.setattr(spec, "time", SimpleNamespace(perf_counter=fake.clock))
    monkeypatch.setattr(human_eval, "problems", lambda: [Problem("HumanEval/7", "def f():\n")])
    monkeypatch.setattr("lucebox.cli.bench.to_builtins", lambda value: str(value))
    return fake


def case(name: str, temperature: float = 0.0) -> Case:
    return Case(name, tuple(name.encode()), 11, temperature=temperature)


def measured(engine: Any, workload: Workload, *specs: str, n_rounds: int = 3) -> list[spec.Sample]:
    return list(spec.measure(engine, workload, arms.parse_all(list(specs)), n_rounds, seed=5))


def test_every_round_begins_with_another_arm(bench: ScriptedBench) -> None:
    samples = measured(bench, Workload("w", (case("a"), case("b"))), "fixed:n=3", "auto")
    order = {(r, c): [s.arm for s in samples if (s.round, s.case) == (r, c)] for r in range(4) for c in "ab"}
    assert {arms_[0] for (_, c), arms_ in order.items() if c == "a"} == {"plain", "fixed:n=3", "auto"}
    assert all(sorted(arms_) == ["auto", "fixed:n=3", "plain"] for arms_ in order.values())
    assert order[0, "a"][0] != order[0, "b"][0]
    assert [s.wall_ms for s in samples if s.arm == "plain"] == pytest.approx([300.0] * 8)


def test_greedy_requests_carry_no_seed(bench: ScriptedBench) -> None:
    measured(bench, Workload("w", (case("a"),)), "auto", n_rounds=1)
    for _, params in bench.asked:
        assert (params.temperature, params.seed, params.max_tokens) == (0.0, None, 11)
        assert params.speculative.acceptance is None


def test_arms_share_a_seed_that_changes_with_the_round(bench: ScriptedBench) -> None:
    workload = Workload("w", (case("a", 1.0), case("b", 1.0)))
    samples = measured(bench, workload, "auto", "model/fixed:n=3/token", n_rounds=2)
    seeds: dict[tuple[int, str], set[int | None]] = {}
    for sample, (_, params) in zip(samples, bench.asked, strict=True):
        seeds.setdefault((sample.round, sample.case), set()).add(params.seed)
        judge = "token" if sample.arm == "model/fixed:n=3/token" else "block"
        assert params.speculative.acceptance == judge
    assert all(len(of_pair) == 1 for of_pair in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds)


def test_an_engines_own_acceptance_is_left_alone(bench: ScriptedBench) -> None:
    bench.info.acceptance = "token"
    measured(bench, Workload("w", (case("a", 1.0),)), "auto", n_rounds=1)
    assert {params.speculative.acceptance for _, params in bench.asked} == {None}


def test_only_fixed_arms_are_warmed_up(bench: ScriptedBench) -> None:
    engine: Any = bench
    spec.warm_up(engine, arms.parse_all(["auto", "fixed:n=3"]))
    assert [params.speculative.draft_length for _, params in bench.asked] == [None, "fixed:n=3"]


def test_agreement_is_that_of_single_greedy_guesses(bench: ScriptedBench) -> None:
    engine: Any = bench
    assert spec.agreement(engine, [case("a"), case("b", 1.0)]) == pytest.approx(12 / 20)
    [(_, params)] = bench.asked
    assert (params.speculative.draft_length, params.speculative.drafter) == ("fixed:n=1", "model")
    assert spec.agreement(engine, [case("b", 1.0)]) is None


@pytest.mark.parametrize("flags", [(), ("--remember",)])
def test_drafters_remember_only_when_asked_to(bench: ScriptedBench, flags: tuple[str, ...]) -> None:
    argv = ["bench", "spec", *MODELS, "--workloads", "prose", "--rounds", "1", "--tokens", "2", *flags]
    assert main([*argv, "--arm", "auto"]) == 0
    assert bench.info.remembers == bool(flags)


def test_tables_and_json(bench: ScriptedBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    argv = ["bench", "spec", *MODELS, "--workloads", "code,prose", "--rounds", "2", "--tokens", "11"]
    assert main([*argv, "--arm", "model/fixed:n=3", "--arm", "auto", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "code: 1 prompt of" in out
    assert "prose: 1 prompt of" in out
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("model/fixed:n=3")]
    assert rows[0] == [
        *("model/fixed:n=3", "110.0", "0.20", "0.10", "1.50", "1.50", "1.00", "best"),
        *("60%", "2.20", ".80", ".40", "0%", "2/2", "-"),
    ]
    assert bench.closed
    found = json.loads(file.read_text())
    assert [workload["name"] for workload in found["workloads"]] == ["code", "prose"]
    auto = next(arm for arm in found["workloads"][0]["arms"] if arm["arm"] == "auto")
    assert auto["speedup"] == pytest.approx(300 / 260)
    assert auto["regret"] == pytest.approx(1 - 200 / 260)
    assert len(found["samples"]) == 2 * 3 * 3
    assert found["configuration"]["seed"] == 0


def test_names_with_brackets_are_no_markup(bench: ScriptedBench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.info.target.name = "x [/red] [bold]"
    argv = ["bench", "spec", *MODELS, "--workloads", "prose", "--rounds", "1", "--arm", "auto"]
    assert main(argv) == 0
    assert "x [/red] [bold] on CPU" in capsys.readouterr().out


def test_what_was_measured_is_shown_after_ctrl_c(
    bench: ScriptedBench, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(params: SamplingParams) -> str:
        if len(bench.asked) == 1 + 2 * 2 + 1:  # warmed up, two rounds of two arms, and one answer more
            raise KeyboardInterrupt
        return "b" * 11

    bench.answer = interrupted
    assert main(["bench", "spec", *MODELS, "--workloads", "prose", "--arm", "auto"]) == 130
    out = capsys.readouterr().out
    assert "prose: 1 prompt of" in out
    assert "1.15" in out


def test_a_failure_shows_what_was_measured_too(
    bench: ScriptedBench, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(params: SamplingParams) -> str:
        raise EngineError("out of luck")

    bench.answer = failing
    assert main(["bench", "spec", *MODELS, "--workloads", "prose"]) == 1
    out, err = capsys.readouterr()
    assert "Nothing was measured" in out
    assert "out of luck" in err


def test_without_a_draft_model_no_arm_asks_for_one(bench: ScriptedBench) -> None:
    argv = ["bench", "spec", "--target-model", "t.gguf", "--workloads", "prose", "--rounds", "1"]
    assert main(argv) == 0
    drafters = {params.speculative.drafter for _, params in bench.asked}
    assert drafters == {None, "suffix"}


def test_the_float16_copy_is_made_once(
    bench: ScriptedBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))
    model = write_tiny(tmp_path / "tiny.gguf", arch="qwen2")
    written: list[Path] = []

    def write_f16(source: Path, target: Path, on_progress: Any, *, n_threads: int) -> None:
        written.append(target)
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(dequantised, "write_f16", write_f16)
    argv = ["bench", "spec", "--target-model", str(model), "--draft-model", "d.gguf", "--f16"]
    for _ in range(2):
        assert main([*argv, "--workloads", "code", "--rounds", "1", "--arm", "auto"]) == 0
    assert len(written) == 1
    assert bench.info.options.target_model == str(written[0])
    out = capsys.readouterr().out
    assert "F16 (dequantised)" in out
    assert "target's own token at 0.600 of places" in out


def test_a_copy_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))
    model = write_tiny(tmp_path / "tiny.gguf", arch="qwen2")
    monkeypatch.setattr(dequantised.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(Exception, match=r"needs 0\.1 GB in .*; 0\.0 GB are free"):
        dequantised.f16_copy(model)
    assert not list((tmp_path / "cache").rglob("*.gguf"))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--workloads", "codes"], "Unknown workload 'codes'"),
        (["--arm", "modle/auto"], "modle"),
        (["--rounds", "0"], "--rounds must be a whole number from 1"),
        (["--tokens", "many"], "--tokens must be a whole number"),
        (["--prompts", "-1"], "--prompts must be"),
        (["--json", "/nowhere/out.json"], "--json /nowhere/out.json cannot be written"),
        (["--arms", "auto"], "--arm"),
        (["--threads", "0"], "--threads must be"),
    ],
)
def test_a_mistake_is_told_before_anything_is_loaded(
    argv: list[str], words: str, bench: ScriptedBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "spec", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert not hasattr(bench.info, "options")


def test_other_benchmarks_get_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[list[str]] = []
    monkeypatch.setattr("lucebox.bench.kernels.main", heard.append)
    assert main(["bench", "kernels", "--n-vocab", "1000", "--repeats", "2"]) == 0
    assert main(["bench", "kernels"]) == 0
    assert heard == [["--n-vocab", "1000", "--repeats", "2"], []]


def test_a_benchmark_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "spec, plain, load" in capsys.readouterr().err
