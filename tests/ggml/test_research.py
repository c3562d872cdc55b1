"""Traces of whole engines on tiny models, and the table that is made of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lucebox import SamplingParams, SpeculativeParams
from lucebox.config import EngineConfig, EngineOptions
from lucebox.errors import ConfigError, RequestError, TraceError
from lucebox.research import Trace, Truncation, expected_tokens, record
from lucebox.research.costs import CostModel
from lucebox.research.expected import STRATEGIES, expected_accepted
from lucebox.research.replay import replay
from tests.support.tiny_engines import tiny_config
from tests.support.tiny_models import write_tiny

PROMPTS = [[5, 6, 7], "Once upon", [9] * 20]


def config(folder: Path) -> EngineConfig:
    return tiny_config(folder, draft={"perturbation": 0.3}, draft_length="fixed:n=3", sharpness=2.0)


def params(acceptance: str) -> SamplingParams:
    return SamplingParams(
        temperature=1.0,
        seed=4,
        max_tokens=20,
        ignore_eos=True,
        speculative=SpeculativeParams(acceptance=acceptance),
    )


def recorded(folder: Path, acceptance: str, truncation: Truncation) -> Trace:
    path = folder / f"{acceptance}.trace"
    record(config(folder), PROMPTS, params(acceptance), path, truncation=truncation)
    return Trace.read(path)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("sampled"), "block", Truncation(exact=True))


@pytest.fixture(scope="module")
def argmax(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("argmax"), "match", Truncation(top_k=32, mass=0.99))


def test_a_run_is_recorded(sampled: Trace) -> None:
    header = sampled.header
    assert (header.acceptance, header.draft_length, header.drafters) == ("block", "fixed:n=3", ("model",))
    assert header.params == params("block")
    assert sampled.requests[0].prompt == PROMPTS[0]
    assert len(sampled.requests) == len(PROMPTS)
    for request in sampled.requests:
        assert 20 <= len(sampled.answer(request.id)) <= 23
        rounds = [r for r in sampled.rounds if r.request == request.id]
        assert rounds[0].n_prefix == len(request.prompt)
    assert len(sampled.drafted) > 10
    assert all(r.is_exact and r.has_q and r.is_chain for r in sampled.rounds)
    assert all(law is not None for r in sampled.drafted for law in r.q)
    assert all(r.draft_ms > 0 < r.verify_ms for r in sampled.drafted)


def test_an_argmax_run_is_recorded(argmax: Trace) -> None:
    assert all(r.has_q for r in argmax.rounds)
    assert all(law is None for r in argmax.drafted for law in r.q)
    assert not all(r.is_exact for r in argmax.drafted)


def test_recorded_rounds_are_expected_and_judged_alike(sampled: Trace) -> None:
    for strategy in STRATEGIES:
        expected = [expected_accepted(strategy, r).low for r in sampled.drafted]
        result = replay(sampled, strategy, n_times=40)
        assert result.n_rounds + result.n_unjudged == 40 * len(expected)
        found, wanted = result.mean_acceptance_length - 1, sum(expected) / len(expected)
        if strategy == "block":  # its expectation is over drafts, too, which a replay keeps
            assert abs(found - wanted) < 0.35
        else:
            assert abs(found - wanted) < 4 * 1.5 / result.n_rounds**0.5
    pairs = [(expected_accepted("block", r), expected_accepted("token", r)) for r in sampled.drafted]
    assert all(block.low >= token.low for block, token in pairs)


def test_controllers_are_replayed(sampled: Trace) -> None:
    costs = CostModel({1: 10.0, 4: 14.0}, draft=1.0)
    n_drafted = {}
    for controller in ("fixed:n=2", "threshold:n=3,p_min=0.1", "svip", "auto"):
        result = replay(sampled, "block", controller, costs=costs)
        assert result.n_rounds == len(sampled.drafted)
        assert result.ms_per_token > 0
        n_drafted[controller] = result.n_drafted
    assert n_drafted["fixed:n=2"] == sum(min(2, len(r)) for r in sampled.drafted)
    assert 0 < n_drafted["threshold:n=3,p_min=0.1"] < sum(len(r) for r in sampled.drafted)


def test_the_table(sampled: Trace, argmax: Trace) -> None:
    text = expected_tokens.table(sampled, argmax)
    rows = {cells[0]: cells[1:] for cells in table_rows(text)}
    assert list(rows)[2:] == [
        "`block`",
        "`token`",
        "`gumbel`",
        "`match`, drafts drawn from q",
        "`match`, argmax drafts (a trace of its own)",
    ]
    block, token, gumbel, match = (float(rows[name][0]) for name in list(rows)[2:6])
    assert 4 > block > token > gumbel > match > 1
    for cells in list(rows.values())[2:]:
        if "to" not in " ".join(cells):
            assert float(cells[0]) == pytest.approx(1 + sum(float(cell) for cell in cells[1:]), abs=0.02)
    assert f"on {len(sampled.drafted)} of {len(sampled.drafted)} rounds" in text


def table_rows(text: str) -> list[list[str]]:
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_a_table_needs_drafts(sampled: Trace) -> None:
    with pytest.raises(ConfigError, match="no drafts"):
        expected_tokens.table(sampled, Trace(sampled.header, sampled.requests, []))


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(expected_tokens, "CODE", ("def f", "class A:"))
    monkeypatch.setattr(expected_tokens, "N_CTX", 128)
    target, draft = write_tiny(tmp_path / "t.gguf"), write_tiny(tmp_path / "d.gguf", perturbation=0.2)
    numbers = ["--length", "2", "--tokens", "12", "--threads", "1"]
    arguments = [str(target), str(draft), *numbers, "--traces", str(tmp_path)]
    assert expected_tokens.main(arguments) == 0
    out = capsys.readouterr().out
    assert re.search(r"\| `block` \| [123]\.\d{3} \| 0\.\d\d \| 0\.\d\d \|", out)
    assert "2 prompts of code" in out
    assert Trace.read(tmp_path / "sampled.trace").header.draft_length == "fixed:n=2"
    assert expected_tokens.main([str(target), str(draft), "--traces", str(tmp_path / "none")]) == 2
    assert expected_tokens.main([str(target), str(draft), "--tokens", "few"]) == 2
    err = capsys.readouterr().err
    assert "no folder" in err
    assert "--tokens must be" in err


def test_a_folder_that_is_not_there_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such folder"):
        record(EngineOptions(target_model="no-such-model"), [], params("block"), tmp_path / "none" / "t")


def test_a_request_that_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "refused.trace"
    with pytest.raises(RequestError):
        record(config(tmp_path), [[5] * 1000], params("block"), path)
    assert not list(tmp_path.glob("*.trace*"))
