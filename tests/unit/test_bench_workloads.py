"""What is asked: names, sizes, and that the same seed asks the same."""

from __future__ import annotations

from typing import Any

import pytest

from lucebox.bench import human_eval, workloads
from lucebox.bench.human_eval import Problem
from lucebox.bench.passages import ARTICLES, field_notes
from lucebox.bench.workloads import Size, expand, make
from lucebox.errors import ConfigError
from tests.support.bench_engine import ScriptedBench

PROBLEMS = [Problem(f"HumanEval/{i}", f"def f{i}(x):\n") for i in range(10)]
GRID = [f"grid-{prompt}-{output}" for prompt in ("64", "1k", "4k") for output in (16, 160, 1000)]


@pytest.fixture(autouse=True)
def _no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(human_eval, "problems", lambda: PROBLEMS)


def made(name: str, size: Size = Size()) -> workloads.Workload:  # noqa: B008 (frozen)
    engine: Any = ScriptedBench()
    return make(name, engine, size)


def test_names() -> None:
    assert expand("code, prose,code") == ["code", "prose"]
    assert expand("grid") == GRID
    assert expand("grid-1k-160,grid") == ["grid-1k-160", *(name for name in GRID if name != "grid-1k-160")]


@pytest.mark.parametrize(
    "name", ["codes", "", "grid-2k-16", "grid-64-17", "grid-64", "grid-64-" + "9" * 5000]
)
def test_unknown_names_are_told(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Unknown workload .*There are: code"):
        expand(f"prose,{name}")


@pytest.mark.parametrize("name", ["code", "edit", "summarise", "prose", "chat", "grid-64-16"])
def test_a_seed_fixes_what_is_asked(name: str) -> None:
    assert [case.prompt for case in made(name).cases] == [case.prompt for case in made(name).cases]
    prompts = {made(name, Size(seed=seed)).cases[0].prompt for seed in range(12)}
    assert len(prompts) > 1


def test_sizes_are_heeded_as_far_as_texts_go() -> None:
    assert len(made("code", Size(n_prompts=3)).cases) == 3
    assert len(made("code", Size(n_prompts=99)).cases) == len(PROBLEMS)
    assert len(made("summarise", Size(n_prompts=99)).cases) == len(ARTICLES)
    assert len(made("edit", Size(n_prompts=5)).cases) == 5
    assert [case.n_tokens for case in made("prose", Size(n_tokens=7)).cases] == [7]


def test_only_prose_is_sampled_and_only_edits_are_checked() -> None:
    for name in ("code", "edit", "summarise", "prose", "chat"):
        for case in made(name).cases:
            assert case.temperature == (1.0 if name == "prose" else 0.0)
            assert (case.problem is not None) == (name == "edit")


def test_an_edit_may_be_written_whole() -> None:
    [case] = made("edit").cases
    assert case.problem is not None
    assert case.problem("```python\n```") != ""
    assert case.n_tokens > 1500  # its tokens are bytes


def test_conversations_go_on_from_the_targets_own_answers() -> None:
    engine = ScriptedBench(answer=lambda params: "so I said")
    case_1, case_2, case_3 = make("chat", engine, Size(n_tokens=9)).cases  # type: ignore[arg-type]
    assert len(engine.asked) == 2
    assert all(params.speculative.enabled is False and params.greedy for _, params in engine.asked)
    assert bytes(case_2.prompt).startswith(bytes(case_1.prompt) + b"assistant: so I said\nuser: ")
    assert bytes(case_3.prompt).startswith(bytes(case_2.prompt) + b"assistant: so I said\nuser: ")


def test_the_grid_is_exact() -> None:
    for name, n_prompt, n_output in (("grid-64-16", 64, 16), ("grid-4k-1000", 4096, 1000)):
        [case] = made(name, Size(n_tokens=5)).cases
        assert (len(case.prompt), case.n_tokens, case.ignore_eos) == (n_prompt, n_output, True)


def test_a_context_that_is_too_small_is_told() -> None:
    engine: Any = ScriptedBench()
    engine.info.n_ctx = 4096
    with pytest.raises(ConfigError, match="context of 5096 tokens, there are 4096"):
        make("grid-4k-1000", engine, Size())


def test_field_notes_are_long_enough_and_vary() -> None:
    text = field_notes(3000, 1)
    sentences = text.split(". ")
    assert len(text.split()) >= 3000
    assert len(set(sentences)) > 0.9 * len(sentences)
