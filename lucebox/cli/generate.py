"""`lucebox generate`: continue one prompt and leave."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import to_builtins

from lucebox import flags
from lucebox.cli import sampling
from lucebox.cli.engine import open_engine, write_chunks
from lucebox.cli.summary import summary
from lucebox.config import EngineOptions
from lucebox.errors import ConfigError

if TYPE_CHECKING:
    from lucebox.api import Completion

HELP = "continue a prompt, or answer it with --chat"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue; - reads it from stdin")
    parser.add_argument("--chat", action="store_true", help="put PROMPT into the model's chat template")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with text, tokens and timings"
    )
    parser.add_argument("--stats", action="store_true", help="say on stderr what it cost")
    sampling.add_arguments(parser)
    flags.add_arguments(parser, EngineOptions)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    params = sampling.sampling_params(arguments)
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    if not prompt:
        raise ConfigError("PROMPT is empty", remedy="give the text to continue")
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


def _messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _json(completion: Completion) -> str:
    return json.dumps(
        {
            "text": completion.text,
            "tokens": list(completion.tokens),
            "origins": [origin.value for origin in completion.origins],
            "finish_reason": completion.finish_reason,
            "timings": to_builtins(completion.timings),
        },
        ensure_ascii=False,
    )
