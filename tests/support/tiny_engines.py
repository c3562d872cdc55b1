"""Engine configurations over tiny models written on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from typing import Any

from lucebox.config import EngineConfig, ModelConfig
from lucebox.engine.client import EngineClient
from lucebox.engine.loader import LoadedEngine, load
from lucebox.engine.messages import RequestEvent, Submit, is_last
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer
from tests.support.tiny_models import write_tiny

TIMEOUT_S = 60.0


def tiny_config(
    folder: Path,
    *,
    draft: dict[str, Any] | None = None,
    n_ctx: int = 256,
    n_parallel: int = 1,
    draft_length: str = "fixed:n=4",
    acceptance: str = "auto",
    **target: Any,
) -> EngineConfig:
    """A target of `target`'s options (see TinySpec), and a draft of the same with `draft`'s on top."""

    def model(name: str, options: dict[str, Any]) -> ModelConfig:
        path = folder / name
        write_tiny(path, **options)
        return ModelConfig(path=str(path), device="CPU", n_threads=1, kv_type="f32")

    return EngineConfig(
        target=model("target.gguf", target),
        draft=None if draft is None else model("draft.gguf", {**target, **draft}),
        drafters=() if draft is None else ("model",),
        acceptance=acceptance,
        draft_length=draft_length,
        n_ctx=n_ctx,
        n_parallel=n_parallel,
    )


class LocalEngine:
    """A loaded engine that the test itself steps."""

    def __init__(self, config: EngineConfig) -> None:
        self.loaded: LoadedEngine = load(config, lambda stage, fraction: None)
        self.answers: dict[str, Answer] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.loaded.stepper.close()

    def submit(self, prompt: Sequence[int], params: SamplingParams, *, seed: int = 1) -> Answer:
        id = f"r{len(self.answers)}"
        self.answers[id] = Answer()
        submit = Submit(id=id, prompt=list(prompt), params=params, seed=seed)
        self.loaded.stepper.scheduler.add(self.loaded.admission.admit(submit))
        return self.answers[id]

    def run(self) -> None:
        stepper = self.loaded.stepper
        while not stepper.scheduler.is_idle:
            for event in stepper.step():
                assert event.id is not None
                self.answers[event.id].events.append(event)
        stepper.check_integrity()

    def ask(self, prompt: Sequence[int], params: SamplingParams, *, seed: int = 1) -> Answer:
        answer = self.submit(prompt, params, seed=seed)
        self.run()
        return answer


class Asked:
    """A request at a client, whose events the test takes one by one."""

    def __init__(
        self, client: EngineClient, id: str, prompt: Sequence[int], params: SamplingParams, *, seed: int = 1
    ) -> None:
        self._events: Queue[RequestEvent] = Queue()
        self.answer = Answer()
        client.submit(Submit(id=id, prompt=list(prompt), params=params, seed=seed), self._events.put)

    @property
    def is_over(self) -> bool:
        return bool(self.answer.events) and is_last(self.answer.events[-1])

    def next(self, timeout_s: float = TIMEOUT_S) -> RequestEvent:
        event = self._events.get(timeout=timeout_s)
        self.answer.events.append(event)
        return event

    def until(self, n_tokens: int) -> Asked:
        """Waits for at least `n_tokens` tokens."""
        while len(self.answer.tokens) < n_tokens:
            self.next()
        return self

    def all(self, timeout_s: float = TIMEOUT_S) -> Answer:
        """Waits for the end, `timeout_s` for each event at most."""
        while not self.is_over:
            self.next(timeout_s)
        return self.answer
