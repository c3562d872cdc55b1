"""Sampling flags of `chat` and `generate`. Defaults live in SamplingParams: an absent flag sets nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucebox.sampling.params import SamplingParams

# (flag, type, help); the field of SamplingParams is the flag's name
_FLAGS: tuple[tuple[str, type, str], ...] = (
    ("--max-tokens", int, "most tokens to generate; without it, until the context is full"),
    ("--temperature", float, "0 always takes the likeliest token"),
    ("--top-k", int, "draw among the K likeliest tokens; 0: among all"),
    ("--top-p", float, "draw among the likeliest tokens that hold this much probability"),
    ("--min-p", float, "leave out tokens less likely than this share of the likeliest"),
    ("--repetition-penalty", float, "over 1: tokens that occurred become less likely"),
    ("--frequency-penalty", float, "over 0: the more often a token was generated, the less likely"),
    ("--presence-penalty", float, "over 0: tokens that were generated become less likely"),
    ("--seed", int, "the same seed draws the same text"),
)
# More than any vocabulary: token ids come from requests only, never from these flags.
_ANY_VOCABULARY = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    for flag, kind, text in _FLAGS:
        metavar = "N" if kind is int else "X"
        group.add_argument(flag, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="end at TEXT; may be repeated",
    )
    group.add_argument("--no-draft", action="store_true", help="decode without guessing, to compare")


def sampling_params(arguments: argparse.Namespace) -> SamplingParams:
    """The parameters asked for. Raises RequestError for one out of range."""
    from lucebox.sampling.params import SamplingParams, SpeculativeParams

    values: dict[str, Any] = {}
    for flag, _, _ in _FLAGS:
        field = flag.removeprefix("--").replace("-", "_")
        if hasattr(arguments, field):
            values[field] = getattr(arguments, field)
    if hasattr(arguments, "stop"):
        values["stop"] = tuple(arguments.stop)
    if arguments.no_draft:
        values["speculative"] = SpeculativeParams(enabled=False)
    params = SamplingParams(**values)
    params.validate(_ANY_VOCABULARY)
    return params
