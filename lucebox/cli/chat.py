"""`lucebox chat`: a conversation at the terminal, or over pipes, one message a line."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lucebox import flags, terminal
from lucebox.cli import colours, sampling
from lucebox.cli.colours import OriginRuns
from lucebox.cli.engine import open_engine, write_chunks
from lucebox.cli.interrupts import Interrupts
from lucebox.cli.prompt import read_message, recall
from lucebox.cli.summary import summary
from lucebox.cli.type_ahead import held_back
from lucebox.config import EngineOptions, add_model_argument, take_model
from lucebox.errors import RequestError, TemplateError
from lucebox.paths import cache_dir

if TYPE_CHECKING:
    from lucebox.api import ChunkStream, Engine
    from lucebox.sampling.params import SamplingParams

HELP = "talk with the model"

_KEPT = "\n\t"
_STDIN = 0
_NO_COLOURS = "Colours are off here: --color always shows where each token came from."
_GREETING = "/help: commands and colours  /exit: leave  Ctrl-C: stop an answer"
_HELP = """\
  /stats         what the last answer cost and what guessing brought, and all answers together
  /retry         answer the last message again
  /undo          take back the last message and its answer
  /reset         start over
  /system TEXT   instructions that precede the conversation; without TEXT: show them; -: none
  /save FILE     write the conversation, as JSON if FILE ends so, else as Markdown
  /exit          leave (so does Ctrl-D)
  Ctrl-C stops an answer. A \\ at the end of a line continues it, and \"\"\" begins and ends several lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("--system", metavar="TEXT", help="instructions that precede the conversation")
    colours.add_argument(parser)
    sampling.add_arguments(parser)
    flags.add_arguments(parser, EngineOptions)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    take_model(arguments, arguments.model)
    params = sampling.sampling_params(arguments)
    interactive = sys.stdin.isatty()
    coloured = colours.wants_colours(arguments.color, sys.stdout, environ)
    with open_engine(arguments, environ) as engine:
        conversation = Conversation(
            engine, params, arguments.system, interactive=interactive, coloured=coloured
        )
        with recall(cache_dir(environ) / "chat_history") if interactive else contextlib.nullcontext():
            status = conversation.run()
    return 0 if interactive else status


class Conversation:
    """Messages so far, and what to do with each that is typed."""

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        system: str | None,
        *,
        interactive: bool,
        coloured: bool = False,
    ) -> None:
        self._engine = engine
        self._params = params
        self._system = system or ""
        self._messages: list[dict[str, str]] = []
        self._answers: list[ChunkStream] = []
        self._interactive = interactive
        self._coloured = coloured
        self._interrupts = Interrupts()
        self._status = 0
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/help": self._help,
            "/stats": self._stats,
            "/retry": self._retry,
            "/undo": self._undo,
            "/reset": self._reset,
            "/system": self._set_system,
            "/save": self._save,
        }

    def run(self) -> int:
        """Until /exit or the end of the input. Returns 2 where a command was unknown, 1 where something could
        not be done, else 0."""
        if self._interactive:
            print(_GREETING, file=sys.stderr)
        with self._interrupts if self._interactive else contextlib.nullcontext():
            while (message := read_message(self._interactive, self._interrupts.allowed)) is not None:
                word, _, rest = message.strip().partition(" ")
                if word == "/exit":
                    break
                self._heed(message, word, rest.strip())
        return self._status

    def _heed(self, message: str, word: str, rest: str) -> None:
        if word in self._commands:
            self._commands[word](rest)
        elif word.startswith("/") and not rest:
            known = ", ".join([*self._commands, "/exit"])
            self._complain(f"unknown command {terminal.printable(word)}; known: {known}", status=2)
        elif word:
            self._answer(message)

    def _complain(self, line: str, *, status: int = 1) -> None:
        terminal.say(line)
        self._status = max(self._status, status)

    def _answer(self, text: str) -> None:
        """Streams the answer. What Ctrl-C cut off stays in the conversation; a refused message does not."""
        self._messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        chunks = self._engine.stream_chat([*self._opening(), *self._messages], self._params)
        runs = OriginRuns(self._engine.tokenizer.vocabulary) if self._coloured else None
        try:
            with self._quiet_keyboard(), self._interrupts.allowed():
                write_chunks(chunks, pieces, runs)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
        except (RequestError, TemplateError) as error:
            self._messages.pop()
            self._status = max(self._status, 1)
            terminal.show_error(error)
            return
        finally:
            chunks.close()
        self._answers.append(chunks)
        self._messages.append({"role": "assistant", "content": "".join(pieces)})

    def _quiet_keyboard(self) -> contextlib.AbstractContextManager[None]:
        return held_back(_STDIN) if self._interactive else contextlib.nullcontext()

    def _opening(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self._system}] if self._system else []

    def _help(self, _: str) -> None:
        print(f"{_HELP}\n" + (f"Tokens of an answer:\n{colours.legend()}" if self._coloured else _NO_COLOURS))

    def _stats(self, _: str) -> None:
        if not self._answers:
            print("no figures: nothing was answered yet")
            return
        last = self._answers[-1].timings
        # What an interrupted answer cost is known behind the step that it was interrupted in.
        print("no figures of the last answer yet" if last is None else summary(last))
        known = [answer.timings for answer in self._answers if answer.timings is not None]
        if len(known) > 1:
            print(f"\nall {len(known)} answers")
            print(summary(sum(known[1:], known[0])))

    def _retry(self, _: str) -> None:
        if (message := self._taken_back()) is None:
            self._complain("there is nothing to retry")
        else:
            self._answer(message)

    def _undo(self, _: str) -> None:
        message = self._taken_back()
        if message is None:
            self._complain("there is nothing to undo")
        else:
            terminal.say(f"taken back: {_brief(message)}")

    def _reset(self, _: str) -> None:
        self._messages.clear()

    def _set_system(self, text: str) -> None:
        if text:
            self._system = "" if text == "-" else text
        print(
            f"system: {terminal.printable(self._system, keep=_KEPT)}" if self._system else "no instructions"
        )

    def _save(self, name: str) -> None:
        if not name:
            self._complain("/save needs a file's name")
            return
        path = Path(name).expanduser()
        try:
            with path.open("x", encoding="utf-8") as file:  # never over another
                file.write(transcript([*self._opening(), *self._messages], as_json=path.suffix == ".json"))
        except OSError as error:
            self._complain(f"not saved: {error.strerror}: {terminal.printable(str(path))}")
        else:
            terminal.say(f"saved: {terminal.printable(str(path))}")

    def _taken_back(self) -> str | None:
        """The last message, which is no longer part of the conversation, nor is its answer."""
        if len(self._messages) < 2:
            return None
        del self._messages[-1]
        return self._messages.pop()["content"]


def transcript(messages: Sequence[Mapping[str, str]], *, as_json: bool) -> str:
    """The conversation as a list of messages in JSON, or as Markdown."""
    if as_json:
        return json.dumps(list(messages), ensure_ascii=False, indent=1) + "\n"
    return "\n".join(f"## {message['role']}\n\n{message['content']}\n" for message in messages)


def _brief(message: str) -> str:
    line = terminal.printable(message.strip().split("\n")[0])
    return line if len(line) <= 60 else f"{line[:59]}…"
