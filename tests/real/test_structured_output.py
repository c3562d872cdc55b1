"""Answers bound by the schemas of a public suite, sampled at temperature 1 with speculation on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lucebox import Completion, Engine, Grammar, SamplingParams, SpeculativeParams
from lucebox.engine.timings import Timings
from lucebox.errors import RequestError
from tests.support.json_schemas import SuiteSchema, suite

# N_GENERATIONS=300 is what the README reports.
N_GENERATIONS = int(os.environ.get("N_GENERATIONS", "30"))
N_PARALLEL = 4
MAX_TOKENS = 768
MAX_CUT_SHARE = 0.1


@pytest.fixture(scope="module")
def engine(model_path: Callable[[str], Path]) -> Iterator[Engine]:
    target = str(model_path("qwen2.5-coder-0.5b"))
    with Engine(target, ctx_size=2048, parallel=N_PARALLEL, drafter="suffix,ngram") as engine:
        yield engine


NUMBER = {"type": "number", "minimum": -1000, "maximum": 1000, "multipleOf": 0.01}  # two decimals
SCALAR = {"anyOf": [{"type": ["boolean", "null"]}, {"type": "string", "maxLength": 12}, NUMBER]}


def bounded(schema: dict[str, Any] | bool, members: dict[str, Any]) -> dict[str, Any]:
    """`schema`, and no more than a few words besides: most of the suite's allow any type, at any length."""
    own = schema if isinstance(schema, dict) else {}
    short = [
        SCALAR,
        {"type": "array", "maxItems": 3, "items": SCALAR},
        {"type": "object", **members},
    ]
    return {**own, "allOf": [*own.get("allOf", []), {"anyOf": short}]}


SHORT_NAMES = {"patternProperties": {"^.{0,12}$": SCALAR}, "additionalProperties": False}
BOUNDS: tuple[dict[str, Any], ...] = (
    {**SHORT_NAMES, "maxProperties": 3},
    SHORT_NAMES,
    {"additionalProperties": SCALAR, "maxProperties": 3},
    {"additionalProperties": SCALAR},
)


def usable(engine: Engine, schema: SuiteSchema) -> Grammar:
    """A grammar of `schema`, bounded where llguidance can. Raises RequestError for what it cannot at all."""
    engine.check_grammar(Grammar.json_schema(schema.schema))
    for members in BOUNDS:
        with suppress(RequestError):
            grammar = Grammar.json_schema(bounded(schema.schema, members))
            engine.check_grammar(grammar)
            return grammar
    return Grammar.json_schema(schema.schema)


def answer(engine: Engine, schema: SuiteSchema, grammar: Grammar) -> Completion:
    request = f"Give one short example of JSON that is valid by this schema:\n{json.dumps(schema.schema)}"
    params = SamplingParams(
        temperature=1.0,
        max_tokens=MAX_TOKENS,
        grammar=grammar,
        speculative=SpeculativeParams(enabled=True, draft_length="fixed:n=4"),
    )
    return engine.chat([{"role": "user", "content": request}], params)


def test_json_is_valid_by_its_schema(engine: Engine) -> None:
    usables, refused = [], []
    for schema in suite():
        try:
            usables.append((schema, usable(engine, schema)))
        except RequestError as error:
            refused.append(error)
    asked = [usables[i * len(usables) // N_GENERATIONS % len(usables)] for i in range(N_GENERATIONS)]
    with ThreadPoolExecutor(N_PARALLEL) as pool:
        answers = list(pool.map(lambda pair: answer(engine, *pair), asked))
    assert all(error.param == "grammar" for error in refused)
    cut, wrong = [], []
    for (schema, _), completion in zip(asked, answers, strict=True):
        said = f"{schema.name}: {completion.text!r} by {json.dumps(schema.schema)}"
        if completion.finish_reason == "length":
            cut.append(said)
        elif not Draft202012Validator(schema.schema).is_valid(json.loads(completion.text)):
            wrong.append(said)
    total = sum((completion.timings for completion in answers), Timings())
    print(
        f"{len(usables)} of {len(usables) + len(refused)} schemas taken, {N_GENERATIONS} generations: "
        f"{N_GENERATIONS - len(cut) - len(wrong)} valid, {len(cut)} cut by length, {len(wrong)} wrong; "
        f"{total.predicted_n} tokens, {total.n_forced} forced, {total.draft_n_accepted} of {total.draft_n} "
        "drafted accepted"
    )
    print("\n".join(cut))
    assert not wrong, "\n".join(wrong)
    assert len(cut) <= MAX_CUT_SHARE * N_GENERATIONS
    assert total.draft_n_accepted > 0
