"""Opens the engine for `chat` and `generate`, with bars for what takes long."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lucebox.config import AUTO, NONE, engine_options
from lucebox.terminal import printable

if TYPE_CHECKING:
    from lucebox.api import Chunk, Engine
    from lucebox.engine.timings import Timings


@contextmanager
def open_engine(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[Engine]:
    """The engine that flags and environment ask for, ready; closed at the end."""
    options = engine_options(arguments, environ)
    if arguments.no_draft:
        options = replace(options, drafter=NONE, draft_model=None, draft_quant=AUTO, draft_vocab=AUTO)
    from lucebox.api import Engine
    from lucebox.progress import Bars

    with Bars() as bars:
        engine = Engine.from_options(options, on_download=bars.on_download, on_status=bars.on_status)
    with engine:
        yield engine


def write_chunks(chunks: Iterable[Chunk], collected: list[str] | None = None) -> Timings | None:
    """Streams an answer to stdout as it comes, and a line end behind it. Text also goes to `collected`."""
    timings, has_text = None, False
    raw = not sys.stdout.isatty()
    try:
        for chunk in chunks:
            sys.stdout.write(chunk.text if raw else printable(chunk.text, keep="\n\t"))
            sys.stdout.flush()
            if collected is not None:
                collected.append(chunk.text)
            timings = chunk.timings
            has_text = has_text or bool(chunk.text)
    except BaseException:
        if has_text:  # what follows begins a line of its own
            print(flush=True)
        raise
    print(flush=True)
    return timings
