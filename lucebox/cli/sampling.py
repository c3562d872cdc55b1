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
    ("--typical-p", float, "draw among the tokens of average surprise that hold this much probability"),
    ("--xtc-probability", float, "how often to leave out all top choices but the least likely (XTC)"),
    ("--xtc-threshold", float, "tokens at least this likely are XTC's top choices"),
    ("--repetition-penalty", float, "over 1: tokens that occurred become less likely"),
    ("--frequency-penalty", float, "over 0: the more often a token was generated, the less likely"),
    ("--presence-penalty", float, "over 0: tokens that were generated become less likely"),
    ("--dry-multiplier", float, "over 0: what prolongs a repetition becomes less likely (DRY)"),
    ("--dry-base", float, "by what DRY's penalty grows with each repeated token"),
    ("--dry-allowed-length", int, "tokens that may be repeated before DRY acts"),
    ("--dry-penalty-last-n", int, "tokens that DRY looks back; -1: all"),
    ("--seed", int, "the same seed draws the same text"),
)
# (flag, field of SamplingParams, help); may be repeated
_TEXTS = (
    ("--stop", "stop", "end at TEXT; may be repeated"),
    (
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        "DRY sees no repetition across TEXT; may be repeated",
    ),
)
# More than any vocabulary: token ids come from requests only, never from these flags.
_ANY_VOCABULARY = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    for flag, kind, text in _FLAGS:
        metavar = "N" if kind is int else "X"
        group.add_argument(flag, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)
    for flag, field, text in _TEXTS:
        group.add_argument(
            flag, dest=field, action="append", metavar="TEXT", default=argparse.SUPPRESS, help=text
        )
    group.add_argument(
        "--ignore-eos",
        action="store_true",
        default=argparse.SUPPRESS,
        help="generate on behind the end of the answer",
    )
    group.add_argument("--no-draft", action="store_true", help="decode without guessing, to compare")


def sampling_params(arguments: argparse.Namespace) -> SamplingParams:
    """The parameters asked for. Raises RequestError for one out of range."""
    from lucebox.sampling.params import SamplingParams, SpeculativeParams

    values: dict[str, Any] = {}
    for field in (*(flag.removeprefix("--").replace("-", "_") for flag, _, _ in _FLAGS), "ignore_eos"):
        if hasattr(arguments, field):
            values[field] = getattr(arguments, field)
    for _, field, _ in _TEXTS:
        if hasattr(arguments, field):
            values[field] = tuple(getattr(arguments, field))
    if arguments.no_draft:
        values["speculative"] = SpeculativeParams(enabled=False)
    params = SamplingParams(**values)
    params.validate(_ANY_VOCABULARY)
    return params
