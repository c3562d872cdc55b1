"""The page's server in a thread: a socket on loopback, and an engine that plays speculation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from lucebox.config import EngineConfig
from lucebox.core import Origin
from lucebox.engine.client import StatusHandler
from lucebox.engine.messages import Event, Failed, Finish, StepEvent, Submit
from lucebox.engine.timings import DraftedRound, RoundTrace, Timings, Work
from lucebox.errors import EngineError
from lucebox.server.application import create_app
from lucebox.server.mounting import lifespan
from lucebox.server.service import Service
from tests.support.scripted_engine import EOS, ByteText, ScriptedEngine
from tests.support.serving import server_config

MARKDOWN = """\
# A heading

Some **bold** words, `code`, a [link](https://example.org/a) and <b>no markup</b>
<img src=x onerror="document.title='pwned'">

- one
- two
  - nested

1. first
2. second

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x):
    return "<script>" + x
```

Done: é 漢 🙂."""
DRAFT_DEPTH, DRAFT_ACCEPTED = 4, (4, 2, 0)  # what is kept of one draft after another
STEP_S = 0.002


def asked(submit: Submit) -> str:
    """The last message of the prompt, as ByteText's template has it."""
    text = bytes(t for t in submit.prompt if t < 256).decode()
    return text.rstrip("\n").rpartition("user:")[2]


def play(submit: Submit) -> Iterator[Event]:
    """Answers in plain and drafted rounds; `slow`, `fail` and `markdown` in the message change it."""
    question = asked(submit)
    text = MARKDOWN if "markdown" in question else f"You said: {question}. "
    if "slow" in question:
        text *= 200
    limit = submit.params.max_tokens
    tokens = [*text.encode(), EOS][:limit]
    rounds = _Rounds(submit, plain=submit.params.speculative.enabled is False)
    while tokens:
        n_accepted = rounds.accepted()
        now, tokens = tokens[: n_accepted + 1], tokens[n_accepted + 1 :]
        time.sleep(STEP_S)
        if "fail" in question and rounds.index > 3:
            yield Failed.of(submit.id, EngineError("the device burned down"))
            return
        reason = None if tokens else "stop" if now[-1] == EOS else "length"
        yield rounds.step(now, n_accepted, reason)


class _Rounds:
    """Words rounds as an engine does, with times on a clock of its own: 10 ms a round."""

    def __init__(self, submit: Submit, *, plain: bool) -> None:
        self.index = 0
        self._submit = submit
        self._plain = plain
        self._n_tokens = 0
        self._sums = Timings(prompt_n=len(submit.prompt), prompt_ms=5.0)

    def accepted(self) -> int:
        """Drafted tokens that the next round keeps; the first has no draft."""
        self.index += 1
        is_plain = self._plain or self.index == 1
        return 0 if is_plain else DRAFT_ACCEPTED[self.index % len(DRAFT_ACCEPTED)]

    def step(self, tokens: list[int], n_accepted: int, reason: Any) -> StepEvent:
        is_plain = self._plain or self.index == 1
        n_accepted = min(n_accepted, len(tokens))
        drafted = None if is_plain else DraftedRound("suffix", DRAFT_DEPTH, DRAFT_DEPTH, n_accepted)
        last = Origin.PLAIN if is_plain else Origin.BONUS if n_accepted == DRAFT_DEPTH else Origin.CORRECTED
        origins = ([Origin.ACCEPTED] * n_accepted + [last])[: len(tokens)]
        self._n_tokens += len(tokens)
        self._sums += Timings(predicted_ms=10.0, n_rounds=1, draft_ms=2.0, verify_ms=7.0)
        if drafted:
            self._sums += drafted.timings()
        timings = self._sums + Timings(predicted_n=self._n_tokens)
        return StepEvent(
            id=self._submit.id,
            tokens=tokens,
            origins=origins,
            drafted=[drafted] if drafted else [],
            round=self.index,
            time_ms=10.0 * self.index,
            finish=Finish(reason=reason, timings=timings) if reason else None,
            traces=[self._trace(len(tokens), drafted)] if self._submit.traced else [],
        )

    def _trace(self, n_tokens: int, drafted: DraftedRound | None) -> RoundTrace:
        start_ms = 10.0 * (self.index - 1)
        work = [Work("target", start_ms + 3.0, start_ms + 10.0)]
        if drafted:
            work.insert(0, Work("draft", start_ms, start_ms + 2.0))
        return RoundTrace(self.index, n_tokens, drafted, 2.0, 7.0, start_ms + 10.0, work)


@dataclass(slots=True)
class PageServer:
    """A running server; `url` is where its page is."""

    url: str
    engine: ScriptedEngine
    text: ByteText
    port: int
    stop: Callable[[], None]


@contextmanager
def page_server(
    *, ready: bool = True, port: int = 0, mount: str = "", n_ctx: int = 100_000, **config: Any
) -> Iterator[PageServer]:
    """Serves until the block ends. `mount`: under this path of another application."""
    engines: list[ScriptedEngine] = []

    def make_engine(_: EngineConfig, on_status: StatusHandler) -> ScriptedEngine:
        engines.append(ScriptedEngine(play, n_ctx=n_ctx, ready=ready, on_status=on_status))
        return engines[0]

    text = ByteText()
    settings = server_config(**config)
    app = create_app(settings, Service(settings, make_engine, lambda _: text))
    if mount:
        inner = app
        app = Starlette(routes=[Mount(mount, inner)], lifespan=lambda _: lifespan(inner))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)

    def stop() -> None:
        server.should_exit = True
        thread.join()

    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield PageServer(f"http://127.0.0.1:{port}{mount}/", engines[0], text, port, stop)
    finally:
        stop()
