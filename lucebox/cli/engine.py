"""Opens the engine for `chat` and `generate`, with bars for what takes long."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lucebox.cli.colours import OriginRuns, painted
from lucebox.config import DRAFT_MODEL_FIELDS, NONE, EngineOptions, engine_options
from lucebox.terminal import printable

if TYPE_CHECKING:
    from lucebox.api import Chunk, Engine
    from lucebox.engine.timings import Timings


@contextmanager
def open_engine(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[Engine]:
    """The engine that flags and environment ask for, ready; closed at the end."""
    options = engine_options(arguments, environ)
    if arguments.no_draft:
        defaults = EngineOptions()
        unset = {field: getattr(defaults, field) for field in DRAFT_MODEL_FIELDS}
        options = replace(options, drafter=NONE, draft_model=None, **unset)
    from lucebox.api import Engine
    from lucebox.progress import Bars

    with Bars() as bars:
        engine = Engine.from_options(options, on_download=bars.on_download, on_status=bars.on_status)
    with engine:
        yield engine


def write_chunks(
    chunks: Iterable[Chunk], collected: list[str] | None = None, runs: OriginRuns | None = None
) -> Timings | None:
    """Streams an answer to stdout, and a line end behind it, wherever Ctrl-C cuts it off. Text also
    goes to `collected`; with `runs` it is coloured."""
    timings, is_open = None, False  # is_open: text may stand in the last line
    raw = not sys.stdout.isatty()
    try:
        for chunk in chunks:
            timings = chunk.timings
            # Noted before it is written: an interrupt may come behind any part of it.
            is_open = is_open or bool(chunk.text)
            if collected is not None:
                collected.append(chunk.text)
            if runs is not None:
                sys.stdout.write(_coloured(chunk, runs))
            else:
                sys.stdout.write(chunk.text if raw else printable(chunk.text, keep="\n\t"))
            sys.stdout.flush()
        print(flush=True)
        is_open = False
    except BaseException as error:
        if is_open or (isinstance(error, KeyboardInterrupt) and not raw):
            print(flush=True)
        raise
    return timings


def _coloured(chunk: Chunk, runs: OriginRuns) -> str:
    runs.push(chunk.tokens, chunk.origins)
    return "".join(painted(printable(text, keep="\n\t"), origin) for text, origin in runs.take(chunk.text))
