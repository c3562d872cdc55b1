"""`lucebox generate`: continue one prompt and leave."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lucebox import flags
from lucebox.cli import sampling
from lucebox.cli.engine import open_engine, write_chunks
from lucebox.cli.summary import summary
from lucebox.config import EngineOptions, take_model
from lucebox.errors import ConfigError
from lucebox.grammar import Grammar
from lucebox.hub.catalogue import CATALOGUE

if TYPE_CHECKING:
    from lucebox.api import Completion

HELP = "continue a prompt, or answer it with --chat"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="PROMPT",
        nargs="*",
        help="the text to continue; - reads it from stdin; with -p: the target model, as --target-model",
    )
    parser.add_argument("-p", "--prompt", metavar="PROMPT", help="the text to continue, beside a model")
    parser.add_argument("--chat", action="store_true", help="put PROMPT into the model's chat template")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with text, tokens and timings"
    )
    parser.add_argument("--stats", action="store_true", help="say on stderr what it cost")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json-schema",
        metavar="FILE|JSON",
        help="the answer is JSON that is valid by this schema: a file's, or itself, as '{…}'",
    )
    form.add_argument(
        "--grammar",
        metavar="FILE",
        help="the answer is a sentence of this grammar, in GBNF or llguidance's Lark",
    )
    sampling.add_arguments(parser)
    flags.add_arguments(parser, EngineOptions)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    params = msgspec.structs.replace(sampling.sampling_params(arguments), grammar=_grammar(arguments))
    prompt = _prompt(arguments)
    with open_engine(arguments, environ) as engine:
        if arguments.json:
            completion = (
                engine.chat(_messages(prompt), params) if arguments.chat else engine.generate(prompt, params)
            )
            print(_json(completion))
            return 0
        chunks = (
            engine.stream_chat(_messages(prompt), params) if arguments.chat else engine.stream(prompt, params)
        )
        timings = write_chunks(chunks)
        if arguments.stats and timings:
            print(summary(timings), file=sys.stderr)
    return 0


def _prompt(arguments: argparse.Namespace) -> str:
    """The text to continue; the target model becomes what --target-model says."""
    words: list[str] = arguments.words
    if len(words) > 1:
        raise ConfigError(
            f"unknown argument {words[1]!r}",
            remedy="put the prompt in quotes; with a model: lucebox generate MODEL -p PROMPT",
        )
    first = words[0] if words else None
    prompt: str | None = arguments.prompt
    if prompt is not None:
        take_model(arguments, first)
    elif first in CATALOGUE:
        raise ConfigError(f"{first} is a model; the prompt is missing", remedy=f"generate {first} -p PROMPT")
    else:
        prompt = first
    if prompt == "-":
        prompt = sys.stdin.read()
    if not prompt:
        raise ConfigError("PROMPT is missing or empty", remedy="give the text to continue")
    return prompt


def _grammar(arguments: argparse.Namespace) -> Grammar | None:
    if arguments.json_schema is not None:
        schema = arguments.json_schema.strip()
        if not schema.startswith("{"):
            schema = _read("--json-schema", schema, "name a file of JSON, or write the schema itself: '{…}'")
        return Grammar("json_schema", schema)
    if arguments.grammar is not None:
        return Grammar.of_text(_read("--grammar", arguments.grammar))
    return None


def _read(flag: str, path: str, remedy: str = "name a text file in UTF-8") -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{flag}: {error}", remedy=remedy) from None


def _messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _json(completion: Completion) -> str:
    return json.dumps(
        {
            "text": completion.text,
            "tokens": list(completion.tokens),
            "origins": [origin.value for origin in completion.origins],
            "finish_reason": completion.finish_reason,
            "timings": msgspec.to_builtins(completion.timings),
        },
        ensure_ascii=False,
    )
