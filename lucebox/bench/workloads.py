"""What is asked in a benchmark: workloads by name, each a few prompts with sampling and length."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from lucebox.api import Engine
from lucebox.bench import human_eval
from lucebox.bench.editing import make_edit
from lucebox.bench.passages import ARTICLES, CONVERSATIONS, STORY_PROMPTS, field_notes
from lucebox.errors import ConfigError
from lucebox.plugins import did_you_mean
from lucebox.sampling.params import SamplingParams, SpeculativeParams

Text = TypeVar("Text")

GRID = "grid"
GRID_PROMPTS: Mapping[str, int] = {"64": 64, "1k": 1024, "4k": 4096}
GRID_OUTPUTS = (16, 160, 1000)
PROMPT_SPEED = 9.0  # prompt tokens computed in the time of one generated, about

_EDIT_SPARE_TOKENS = 48  # for a fence, and a sentence before the file
_TEXT_SYSTEM = "You are a helpful assistant. Answer in plain prose, without headings or lists."


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt. `problem(answer)` says what is wrong with an answer, "" for nothing; None: none can be."""

    name: str
    prompt: tuple[int, ...]
    n_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = False
    problem: Callable[[str], str] | None = None

    @property
    def cost(self) -> float:
        """About the time it takes, in generated tokens; for a progress bar."""
        return len(self.prompt) / PROMPT_SPEED + self.n_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts that are summed up together."""

    name: str
    cases: tuple[Case, ...]

    @property
    def cost(self) -> float:
        return sum(case.cost for case in self.cases)

    def cost_of(self, case: str) -> float:
        return next(c.cost for c in self.cases if c.name == case)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked: `n_prompts` of each workload, as far as it has so many, and `n_tokens` in every
    answer. None leaves it to the workload. `seed` chooses problems, files and texts."""

    n_prompts: int | None = None
    n_tokens: int | None = None
    seed: int = 0

    def of(self, n_prompts: int, n_tokens: int) -> tuple[int, int]:
        """Prompts and tokens of a workload that would have `n_prompts` and `n_tokens` by itself."""
        return self.n_prompts or n_prompts, self.n_tokens or n_tokens


Maker = Callable[[Engine, Size], list[Case]]


def expand(names: str) -> list[str]:
    """`code,grid` as the names of single workloads, each once. Raises ConfigError for an unknown one."""
    expanded: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        for single in _grid_names() if name == GRID else [name]:
            _maker(single)
            if single not in expanded:
                expanded.append(single)
    return expanded


def make(name: str, engine: Engine, size: Size) -> Workload:
    """The workload called `name`, in tokens of the engine's target.

    Conversations take their history from the engine, decoding plainly. Raises ConfigError when a prompt and
    its answer do not fit the context, DownloadError when HumanEval cannot be fetched.
    """
    workload = Workload(name, tuple(_maker(name)(engine, size)))
    for case in workload.cases:
        n_needed = len(case.prompt) + case.n_tokens
        if n_needed > engine.info.n_ctx:
            raise ConfigError(
                f"{case.name} needs a context of {n_needed} tokens, there are {engine.info.n_ctx}",
                remedy="raise --ctx-size if the model allows it, or leave the workload out",
            )
    return workload


def _maker(name: str) -> Maker:
    if name in MAKERS:
        return MAKERS[name]
    grid = re.fullmatch(r"grid-(\w+)-(\d{1,9})", name)
    if grid and grid[1] in GRID_PROMPTS and int(grid[2]) in GRID_OUTPUTS:
        n_prompt, n_output = GRID_PROMPTS[grid[1]], int(grid[2])
        return lambda engine, size: _grid(name, n_prompt, n_output, engine, size)
    raise ConfigError(
        f"Unknown workload {name!r}", remedy=did_you_mean(name, [*MAKERS, GRID, *_grid_names()])
    )


def _code(engine: Engine, size: Size) -> list[Case]:
    """HumanEval as people ask an instruct model: complete this function."""
    n_prompts, n_tokens = size.of(2, 96)
    problems = human_eval.problems()
    chosen = random.Random(size.seed).sample(problems, min(n_prompts, len(problems)))
    return [
        Case(
            f"code/{problem.name.rpartition('/')[2]}",
            _chat(engine, f"Complete this function.\n\n```python\n{problem.prompt}```"),
            n_tokens,
        )
        for problem in chosen
    ]


def _edit(engine: Engine, size: Size) -> list[Case]:
    cases = []
    for i in range(size.n_prompts or 1):
        edit = make_edit(size.seed + i)
        n_tokens = len(engine.tokenizer.encode(edit.expected, parse_special=False)) + _EDIT_SPARE_TOKENS
        prompt = _chat(engine, edit.instruction)
        cases.append(Case(f"edit/{i}", prompt, size.n_tokens or n_tokens, problem=edit.problem))
    return cases


def _summarise(engine: Engine, size: Size) -> list[Case]:
    n_prompts, n_tokens = size.of(1, 96)
    articles = _chosen(ARTICLES, n_prompts, size.seed)
    return [
        Case(f"summarise/{i}", _chat(engine, f"Summarise this article.\n\n{article}", _TEXT_SYSTEM), n_tokens)
        for i, article in enumerate(articles)
    ]


def _prose(engine: Engine, size: Size) -> list[Case]:
    n_prompts, n_tokens = size.of(1, 96)
    prompts = _chosen(STORY_PROMPTS, n_prompts, size.seed)
    return [
        Case(f"prose/{i}", _chat(engine, prompt, _TEXT_SYSTEM), n_tokens, temperature=1.0)
        for i, prompt in enumerate(prompts)
    ]


def _conversation(engine: Engine, size: Size) -> list[Case]:
    """Each turn is a case. The answers in its history are the target's own, the same for every arm."""
    n_prompts, n_tokens = size.of(1, 64)
    params = SamplingParams(
        temperature=0.0, max_tokens=n_tokens, speculative=SpeculativeParams(enabled=False)
    )
    cases: list[Case] = []
    for i, turns in enumerate(_chosen(CONVERSATIONS, n_prompts, size.seed)):
        messages: list[dict[str, str]] = []
        for n, turn in enumerate(turns, start=1):
            messages.append({"role": "user", "content": turn})
            cases.append(Case(f"chat/{i}.{n}", tuple(engine.encode_chat(messages)), n_tokens))
            if n < len(turns):
                messages.append({"role": "assistant", "content": engine.chat(messages, params).text})
    return cases


def _grid(name: str, n_prompt: int, n_output: int, engine: Engine, size: Size) -> list[Case]:
    """Text of exactly `n_prompt` tokens, continued for exactly `n_output`."""
    cases = []
    for i in range(size.n_prompts or 1):
        tokens = engine.tokenizer.encode(field_notes(n_prompt, size.seed + i), parse_special=False)
        assert len(tokens) >= n_prompt
        cases.append(Case(f"{name}/{i}", tuple(tokens[:n_prompt]), n_output, ignore_eos=True))
    return cases


def _chosen(texts: Sequence[Text], n: int, seed: int) -> list[Text]:
    return random.Random(seed).sample(texts, min(n, len(texts)))


def _chat(engine: Engine, text: str, system: str = "") -> tuple[int, ...]:
    messages = [{"role": "system", "content": system}] if system else []
    return tuple(engine.encode_chat([*messages, {"role": "user", "content": text}]))


def _grid_names() -> list[str]:
    return [f"grid-{n_prompt}-{n_output}" for n_prompt, n_output in product(GRID_PROMPTS, GRID_OUTPUTS)]


MAKERS: Mapping[str, Maker] = {
    "code": _code,
    "edit": _edit,
    "summarise": _summarise,
    "prose": _prose,
    "chat": _conversation,
}
