"""Ctrl-C at every point of `lucebox chat`: each prompt begins a line, and the talk goes on."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from lucebox.api import ChunkStream
from lucebox.cli import chat, engine, interrupts, main, prompt
from lucebox.cli.interrupts import Interrupts
from lucebox.cli.type_ahead import held_back

FILES = {str(Path(str(module.__file__))) for module in (chat, engine, interrupts, prompt)}


class Terminal(io.StringIO):
    """Standard output at a terminal."""

    def isatty(self) -> bool:
        return True


class InterruptedLine:
    """Sends SIGINT where the chat's own code reaches its `line`-th line behind the first prompt."""

    def __init__(self, line: int) -> None:
        self.n_left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.n_left -= 1
            if self.n_left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


class FakeEngine:
    """Says a few words that end within a line."""

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stream_chat(self, messages: Sequence[Any], params: object) -> ChunkStream:
        return ChunkStream(self._stream)

    def _stream(self, cost: object) -> Iterator[Any]:
        for text in ("one", " two", "", "\ufffd"):
            yield SimpleNamespace(text=text, tokens=[], origins=[], timings=None)


def talk(monkeypatch: pytest.MonkeyPatch, line: int) -> tuple[InterruptedLine, list[str]]:
    """A talk that is interrupted at `line`, and what stood on the screen at each prompt."""
    shown = Terminal()
    prompts: list[str] = []
    typed = iter(["first", "second", "/stats", "third"])
    at = InterruptedLine(line)

    def read(_: str) -> str:
        prompts.append(shown.getvalue())
        if len(prompts) == 1:
            sys.settrace(at)
            sys._getframe(1).f_trace = at
        if (message := next(typed, None)) is None:
            sys.settrace(None)
            raise EOFError
        return message

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("lucebox.api.Engine", SimpleNamespace(from_options=lambda *_, **__: FakeEngine()))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", Terminal())
    try:
        assert main(["chat", "--color", "never"]) == 0
    finally:
        sys.settrace(None)
    return at, prompts


def test_every_prompt_begins_a_line_wherever_ctrl_c_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path))
    before = signal.getsignal(signal.SIGINT)
    n_interrupted = 0
    for line in range(1, 2000):
        at, prompts = talk(monkeypatch, line)
        assert all(not text or text.endswith("\n") for text in prompts), (line, prompts)
        assert len(prompts) >= 5, line  # all was asked for, and the end
        assert signal.getsignal(signal.SIGINT) is before
        if at.n_left > 0:
            break
        n_interrupted += 1
    assert 100 < n_interrupted < 1999


def test_an_interrupt_is_raised_once_and_only_where_it_is_allowed() -> None:
    with Interrupts() as interrupts_:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts_.allowed():
            signal.raise_signal(signal.SIGINT)
        with interrupts_.allowed():
            pass
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_typed_meanwhile_is_kept_and_not_shown() -> None:
    own, theirs = pty.openpty()
    try:
        before = termios.tcgetattr(theirs)
        with held_back(theirs):
            os.write(own, b"typed ahead")
            assert os.read(theirs, 64) == b"typed ahead"  # no line end was waited for
            os.write(own, b"more\n")
            assert select.select([theirs], [], [], 60)[0]  # the kernel has handled it, or echoes it later
        assert termios.tcgetattr(theirs) == before
        assert os.read(theirs, 64) == b"more\n"
        os.write(theirs, b"answer")
        assert os.read(own, 64) == b"answer"  # no echo came before
    finally:
        os.close(own)
        os.close(theirs)


def test_without_a_terminal_nothing_is_held_back() -> None:
    reading, writing = os.pipe()
    with held_back(reading):
        os.write(writing, b"x")
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    os.close(writing)
