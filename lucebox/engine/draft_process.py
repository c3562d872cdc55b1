"""The process of a draft model, as an engine holds it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from lucebox.engine.child_process import ChildProcess
from lucebox.engine.draft_messages import Computed, DraftConfig, DraftEvent, Forward, Loaded
from lucebox.engine.messages import Failed, Loading
from lucebox.engine.shared_results import SharedResults
from lucebox.errors import DraftLostError, EngineError

POLL_S = 0.5
STALL_S = 5.0  # without a pulse, which comes twice a second: the process is stopped, or starved
LOAD_STALL_S = 60.0  # the same while Python starts and the model is loaded, from a cold disk at worst


class DraftProcess(ChildProcess[DraftEvent]):
    """Asks the process for one forward after another. Its results are read where it writes them.

    To be started, and reaped, by one thread; `compute` is for another.
    """

    def __init__(self, config: DraftConfig, n_floats: int, log_level: str) -> None:
        self.why_killed = ""
        self.results, memory_fd = SharedResults.create(n_floats)
        try:
            super().__init__(
                "lucebox.engine.draft_child",
                "draft model's",
                config,
                DraftEvent,  # type: ignore[arg-type]
                log_level,
                memory_fd=memory_fd,
            )
        finally:
            os.close(memory_fd)

    def wait_loaded(self, on_progress: Callable[[float], None]) -> Loaded:
        """Raises the error that loading met, DraftLostError when the process ends or stands still."""
        while True:
            match self._answer(LOAD_STALL_S):
                case Loaded() as loaded:
                    return loaded
                case Loading(fraction=fraction):
                    on_progress(fraction)

    def compute(self, forward: Forward) -> Computed:
        """Raises the error that the forward met, DraftLostError when the process ends or stands still."""
        try:
            self._channel.send(forward)
        except OSError:
            raise DraftLostError("the draft model's process ended") from None
        answer = self._answer(STALL_S)
        assert isinstance(answer, Computed), f"a {type(answer).__name__} instead of results"
        return answer

    def _answer(self, limit_s: float) -> Loading | Loaded | Computed:
        """The next event, as long as the process shows a pulse at least every `limit_s`."""
        pulse, seen_s = self.results.pulse, time.monotonic()
        while True:
            try:
                event = self.receive(POLL_S)
            except TimeoutError:
                if self.results.pulse != pulse:
                    pulse, seen_s = self.results.pulse, time.monotonic()
                elif time.monotonic() - seen_s > limit_s:
                    self._kill_for(f"the draft model's process stood still for {limit_s:.0f} s")
                continue
            except EngineError as error:
                self._kill_for(f"the draft model's process sent garbage: {error.message}")
                continue
            if event is None:
                raise DraftLostError(self.why_killed or "the draft model's process ended")
            if isinstance(event, Failed):
                raise event.error()
            return event

    def _kill_for(self, reason: str) -> None:
        self.why_killed = reason
        self.kill()
