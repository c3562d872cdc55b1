"""Exact expected tokens per round of the lossless strategies, on one recorded trace of real models.

`python -m lucebox.research.expected_tokens TARGET DRAFT` prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec.structs import replace

from lucebox import flags, terminal
from lucebox.config import EngineOptions
from lucebox.errors import ConfigError, LuceboxError
from lucebox.progress import Bars
from lucebox.research.expected import STRATEGIES, expected_accepted, standing
from lucebox.research.kept_law import Truncation
from lucebox.research.prompts import CODE
from lucebox.research.recorder import record
from lucebox.research.records import RecordedRound
from lucebox.research.traces import Trace
from lucebox.resolve import resolve_engine
from lucebox.sampling.params import SamplingParams, SpeculativeParams

N_CTX = 2048
TRUNCATION = Truncation(top_k=4096, mass=0.99999)
_NAMES = {"match": "`match`, drafts drawn from q"}


def table(sampled: Trace, argmax: Trace) -> str:
    """Markdown: tokens per round that each strategy is expected to emit on the rounds of `sampled`, whose
    drafts were drawn from their laws, and those of `match` on `argmax`, whose drafts are likeliest tokens.

    Raises ConfigError for traces without drafts, or of something else.
    """
    rounds, others = sampled.drafted, argmax.drafted
    if not rounds or not others:
        raise ConfigError("the trace holds no drafts")
    rows = [_row(_NAMES.get(name, f"`{name}`"), name, rounds) for name in STRATEGIES]
    rows.append(_row("`match`, argmax drafts (a trace of its own)", "match", others))
    n_max = max(len(r) for r in (*rounds, *others))
    places = [f"{i}" for i in range(1, n_max + 1)]
    lines = ["| strategy | tokens per round |" + "".join(f" {place} |" for place in places)]
    lines.append("|---" * (n_max + 2) + "|")
    lines += ["| " + " | ".join([*row, *[""] * (n_max + 2 - len(row))]) + " |" for row in rows]
    return "\n".join([*lines, "", _notes(sampled, argmax)])


def _row(label: str, strategy: str, rounds: Sequence[RecordedRound]) -> list[str]:
    """Label, 1 + E[τ], and the probability that each token of a draft stands, means over rounds."""
    n_max = max(len(r) for r in rounds)
    low, high = np.zeros(n_max), np.zeros(n_max)
    for r in rounds:
        stands = standing(strategy, r)
        low[: len(r)] += [s.low for s in stands]
        high[: len(r)] += [s.high for s in stands]
    low, high = low / len(rounds), high / len(rounds)
    return [
        label,
        _between(1 + low.sum(), 1 + high.sum(), 3),
        *(_between(a, b, 2) for a, b in zip(low, high, strict=True)),
    ]


def _between(low: float, high: float, n_digits: int) -> str:
    a, b = f"{low:.{n_digits}f}", f"{high:.{n_digits}f}"
    return a if a == b else f"{a} to {b}"


def _notes(sampled: Trace, argmax: Trace) -> str:
    """What was recorded, and what the columns are."""
    header, rounds = sampled.header, sampled.drafted
    gains = [expected_accepted("block", r).low - expected_accepted("token", r).low for r in rounds]
    n_accepted = sum(len(r.verdict.path) for r in rounds)
    left_out = max(law.rest for r in rounds for law in (*r.p, *r.q) if law is not None)
    sentences = (
        f"{header.target}, drafts by {header.draft}, {header.draft_length}, temperature "
        f"{header.params.temperature:g}, {len(sampled.requests)} prompts of code, {len(rounds)} drafted "
        f"rounds (and {len(argmax.drafted)} with argmax drafts).",
        "Exact, given the recorded drafts; the numbered columns are the shares of rounds in which that token "
        "of the draft is expected to stand.",
        f"`block` expects at least as much as `token` on {sum(gain >= 0 for gain in gains)} of {len(rounds)} "
        f"rounds, and more on {sum(gain > 0 for gain in gains)}.",
        f"The run itself, judged by `{header.acceptance}`, emitted {1 + n_accepted / len(rounds):.3f} tokens "
        "per round.",
        f"At most {left_out:.0e} of a law's mass is not in the file, which concerns `gumbel` alone.",
    )
    return "\n".join(sentences)


def main(argv: Sequence[str] | None = None) -> int:
    """Records the traces and prints the table. Returns the exit code."""
    parser = flags.ArgumentParser(
        prog="python -m lucebox.research.expected_tokens",
        description="Exact expected tokens per round of block, token, gumbel and match, on a recorded trace.",
    )
    parser.add_argument("target", metavar="TARGET", help="the target model, as for --target-model")
    parser.add_argument("draft", metavar="DRAFT", help="the draft model, as for --draft-model")
    parser.add_argument("--length", metavar="N", default="5", help="drafted tokens [default: %(default)s]")
    parser.add_argument(
        "--tokens", metavar="N", default="128", help="tokens per answer [default: %(default)s]"
    )
    parser.add_argument("--seed", metavar="N", default="1", help="[default: %(default)s]")
    parser.add_argument("--threads", metavar="N", help="CPU threads [default: physical cores]")
    parser.add_argument("--traces", metavar="FOLDER", help="keep sampled.trace and argmax.trace here")
    arguments = parser.parse_args(argv)
    try:
        with TemporaryDirectory() as temporary:
            print(_measure(arguments, Path(arguments.traces or temporary)))
    except LuceboxError as error:
        terminal.show_error(error)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _measure(arguments: argparse.Namespace, folder: Path) -> str:
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--traces {folder}: no folder that can be written to")
    n_threads = None if arguments.threads is None else flags.integer(arguments, "threads", 1)
    options = EngineOptions(
        target_model=arguments.target,
        draft_model=arguments.draft,
        ctx_size=N_CTX,
        threads=n_threads,
        draft_length=f"fixed:n={flags.integer(arguments, 'length', 1)}",
    )
    params = SamplingParams(
        temperature=1.0,
        max_tokens=flags.integer(arguments, "tokens", 1),
        seed=flags.integer(arguments, "seed", 1),
    )
    with Bars() as bars:
        config = resolve_engine(options, on_progress=bars.on_download)
        for name, strategy in (("sampled", "block"), ("argmax", "match")):
            bars.on_work("recording", name, 0.0)
            record(
                config,
                CODE,
                replace(params, speculative=SpeculativeParams(acceptance=strategy)),
                folder / f"{name}.trace",
                truncation=TRUNCATION,
                on_answer=partial(_show, bars, name),
            )
    return table(Trace.read(folder / "sampled.trace"), Trace.read(folder / "argmax.trace"))


def _show(bars: Bars, name: str, n_done: int) -> None:
    bars.on_work("recording", name, n_done / len(CODE))


if __name__ == "__main__":
    sys.exit(main())
