"""`lucebox chat`: a conversation at the terminal, or over pipes, one message a line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lucebox import flags, terminal
from lucebox.cli import sampling
from lucebox.cli.engine import open_engine, write_chunks
from lucebox.cli.summary import summary
from lucebox.config import EngineOptions
from lucebox.errors import RequestError, TemplateError

if TYPE_CHECKING:
    from lucebox.api import Engine
    from lucebox.engine.timings import Timings
    from lucebox.sampling.params import SamplingParams

HELP = "talk with the model"

_GREETING = "/reset: start over  /stats: cost of the last answer  /exit: leave  Ctrl-C: stop an answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="instructions that precede the conversation")
    sampling.add_arguments(parser)
    flags.add_arguments(parser, EngineOptions)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    params = sampling.sampling_params(arguments)
    with open_engine(arguments, environ) as engine:
        Conversation(engine, params, arguments.system, interactive=sys.stdin.isatty()).run()
    return 0


class Conversation:
    """Messages so far, and what to do with each line that is typed."""

    def __init__(
        self, engine: Engine, params: SamplingParams, system: str | None, *, interactive: bool
    ) -> None:
        self._engine = engine
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)
        self._timings: Timings | None = None
        self._interactive = interactive

    def run(self) -> None:
        """Until /exit or the end of the input."""
        if self._interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (imported for line editing and recall in input())
            print(_GREETING, file=sys.stderr)
        while (line := self._read()) is not None:
            match line.strip():
                case "":
                    continue
                case "/exit":
                    return
                case "/reset":
                    self._messages = list(self._opening)
                case "/stats":
                    print(
                        summary(self._timings)
                        if self._timings
                        else "no figures: nothing was answered to its end"
                    )
                case command if command.startswith("/") and " " not in command:
                    print(f"unknown command {command}; known: /reset, /stats, /exit", file=sys.stderr)
                case _:
                    self._answer(line)

    def _read(self) -> str | None:
        """The next line, or None at the end. Ctrl-C at the prompt only drops what was typed."""
        while True:
            try:
                return input("> " if self._interactive else "")
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                print("\n(/exit or Ctrl-D leaves)", file=sys.stderr)

    def _answer(self, text: str) -> None:
        """Streams the answer. What Ctrl-C cut off stays in the conversation; a refused message does not."""
        self._messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        chunks = self._engine.stream_chat(self._messages, self._params)
        try:
            self._timings = write_chunks(chunks, pieces)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
        except (RequestError, TemplateError) as error:
            self._messages.pop()
            terminal.show_error(error)
            return
        finally:
            chunks.close()
        self._messages.append({"role": "assistant", "content": "".join(pieces)})
