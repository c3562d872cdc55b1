"""An engine in a thread of this process: for the library and tests."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

from lucebox.config import EngineConfig
from lucebox.cores import pinned
from lucebox.engine.client import EngineClient, EngineState, StatusHandler
from lucebox.engine.loader import load
from lucebox.engine.loop import EngineLoop
from lucebox.engine.messages import Degraded, Failed, Loading, Message, Ready, Shutdown
from lucebox.engine.outbox import Outbox
from lucebox.engine.step import RoundHandler
from lucebox.engine.timeline import WorkHandler, ignore
from lucebox.errors import EngineError, LuceboxError

logger = logging.getLogger(__name__)


class ThreadClient(EngineClient):
    """Runs the engine in one thread and hands its events out in another, so that no handler slows it.

    `on_round` is called in the engine's thread, as lucebox.engine.step.Stepper says, `on_work` in whichever
    computes, as lucebox.engine.timeline.
    """

    def __init__(
        self,
        config: EngineConfig,
        on_status: StatusHandler | None = None,
        on_round: RoundHandler | None = None,
        on_work: WorkHandler = ignore,
    ) -> None:
        super().__init__(on_status, max_in_flight=config.n_parallel + config.max_queue)
        self._config = config
        self._on_round = on_round
        self._on_work = on_work
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._outbox = Outbox()
        self._engine = threading.Thread(target=self._run, name="lucebox-engine", daemon=True)
        self._reader = threading.Thread(target=self._read, name="lucebox-events", daemon=True)

    def start(self) -> None:
        self._reader.start()
        self._engine.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the engine and every request after the step under way, and frees its memory. Idempotent.

        Raises EngineError when that takes longer than `timeout_s`.
        """
        self._inbox.put(Shutdown())
        for thread in (self._engine, self._reader):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(timeout_s)
        if self._engine.is_alive():
            raise EngineError(f"the engine did not end within {timeout_s} s")
        self._give_up(EngineError("the engine was closed"), EngineState.STOPPED)

    def _send(self, message: Message) -> None:
        self._inbox.put(message)

    def _run(self) -> None:
        try:
            with pinned(self._config.target.cores):
                self._serve()
        except Exception as error:
            if not isinstance(error, LuceboxError):
                logger.exception("the engine failed")
            self._outbox.put(Failed.of(None, error))
        finally:
            self._outbox.close()

    def _serve(self) -> None:
        loaded = load(
            self._config,
            self._report_loading,
            self._on_round,
            on_worker_lost=lambda reason: logger.critical("%s; what it computes may never end", reason),
            on_plan=self._outbox.put,
            on_loss=lambda reason: self._outbox.put(Degraded(reason)),
            on_work=self._on_work,
        )
        try:
            self._outbox.put(Ready(loaded.info))
            EngineLoop(
                loaded.stepper,
                loaded.admission,
                self._inbox,
                self._outbox.put,
                timeout_s=self._config.timeout_s,
            ).run()
            loaded.keep_prefixes()
        finally:
            loaded.close()

    def _report_loading(self, stage: str, fraction: float) -> None:
        self._outbox.put(Loading(stage, fraction))

    def _read(self) -> None:
        while (event := self._outbox.take()) is not None:
            self._dispatch(event)
