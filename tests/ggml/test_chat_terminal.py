"""`lucebox chat` at a terminal: colours, Ctrl-C, and recall in the next session."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest

from tests.support.source_tree import ROOT
from tests.support.tiny_models import write_tiny

PROMPT = "> "
ACCEPTED = "\x1b[32m"
UP = "\x1b[A"


class PseudoTerminal:
    """`lucebox chat` with a tiny model, at a terminal of its own."""

    def __init__(self, target: Path, draft: Path, cache: Path, *flags: str) -> None:
        self._own, theirs = pty.openpty()
        command = [sys.executable, "-m", "lucebox", "chat", *flags]
        command += ["--target-model", str(target), "--draft-model", str(draft), "--threads", "1"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "LUCEBOX_CACHE": str(cache), "TERM": "xterm"}
        environ.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # reads may cut characters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def wait_for(self, text: str, timeout_s: float = 60.0) -> str:
        """What came until `text`, with it; what follows is left for the next call."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline_s, f"no {text!r} in {self.seen!r}"
            if select.select([self._own], [], [], 0.1)[0]:
                self.seen += self._decode(os.read(self._own, 65536))
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def wait_for_any(self, timeout_s: float = 60.0) -> None:
        """Until something came that was not there before."""
        assert select.select([self._own], [], [], timeout_s)[0], "nothing came"

    def close(self) -> int:
        return self.process.wait(30)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = write_tiny(folder / "target.gguf", "qwen2", n_ctx=4096, seed=3)
    return target, write_tiny(folder / "draft.gguf", "qwen2", n_ctx=4096, seed=3, perturbation=0.1)


def test_a_session_and_the_next(models: tuple[Path, Path], tmp_path: Path) -> None:
    greedy = ("--temperature", "0", "--draft-length", "fixed:n=3")
    with PseudoTerminal(*models, tmp_path, *greedy, "--max-tokens", "24") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("hello\n")
        assert ACCEPTED in terminal.wait_for(f"\n{PROMPT}")
        terminal.type("/stats\n")
        stats = terminal.wait_for(f"\n{PROMPT}")
        assert re.search(r"by position +\d+%", stats)
        assert ACCEPTED not in stats
        terminal.type("/exit\n")
        assert terminal.close() == 0

    history = tmp_path / "chat_history"
    assert history.read_text().splitlines()[-3:] == ["hello", "/stats", "/exit"]
    assert history.stat().st_mode & 0o077 == 0
    with PseudoTerminal(*models, tmp_path, *greedy, "--max-tokens", "4", "--color", "never") as again:
        again.wait_for(PROMPT)
        again.type(3 * UP + "\n")
        answer = again.wait_for(f"\n{PROMPT}")
        assert "hello" in answer
        assert ACCEPTED not in answer
        again.type("/exit\n")
        assert again.close() == 0


def test_ctrl_c_stops_an_answer_and_the_talk_goes_on(models: tuple[Path, Path], tmp_path: Path) -> None:
    with PseudoTerminal(
        *models, tmp_path, "--ctx-size", "4096", "--temperature", "0", "--no-draft"
    ) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("hello\n")
        terminal.wait_for("hello\r\n")
        terminal.wait_for_any()
        terminal.process.send_signal(signal.SIGINT)  # the pseudo terminal is not its controlling one
        terminal.wait_for(f"\n{PROMPT}")
        stats = "figures of the last answer yet"
        while "figures of the last answer yet" in stats:  # until its last step is over
            terminal.type("/stats\n")
            stats = terminal.wait_for(f"\n{PROMPT}")
        assert re.search(r"answer +[1-9]\d* tokens in", stats)
        terminal.type("/undo\n")
        assert "taken back: hello" in terminal.wait_for(f"\n{PROMPT}")
        terminal.type("\x04")
        assert terminal.close() == 0


def test_what_is_typed_during_an_answer_is_the_next_message(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    flags = ("--ctx-size", "4096", "--temperature", "0", "--no-draft", "--max-tokens", "200")
    with PseudoTerminal(*models, tmp_path, *flags) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("hello\n")
        terminal.wait_for("hello\r\n")
        terminal.wait_for_any()
        terminal.type("/sys")  # half a line now, the rest behind the next prompt
        answer = terminal.wait_for(f"\n{PROMPT}")
        assert "/sys" not in answer
        terminal.type("tem\n")
        assert "no instructions" in terminal.wait_for(f"\n{PROMPT}")
        terminal.type("/exit\n")
        assert terminal.close() == 0
