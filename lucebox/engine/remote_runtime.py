"""A draft model in a process of its own, for whom a Runtime would do: RemoteRuntime."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

import numpy as np

from lucebox import models
from lucebox.engine.draft_messages import DraftConfig, Forward, Loaded, pack_rows
from lucebox.engine.draft_process import DraftProcess
from lucebox.engine.mirrored_cache import MirroredCache
from lucebox.errors import DraftLostError, EngineError, LuceboxError
from lucebox.gguf import read
from lucebox.runtime.layout import Layout
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 5.0
STEADY_S = 30.0  # a process that lived so long is started again at once
EXIT_TIMEOUT_S = 2.0
REASON_TIMEOUT_S = 1.0  # for the last words of a process that has just closed its connection

LossHandler = Callable[[str], None]


class RemoteRuntime:
    """As a lucebox.runtime.runtime.Runtime, for one thread: `forward` computes, `cache` decides what stays.

    The process may be lost, for a worker or for anything that ends it. `forward` raises DraftLostError then,
    and so it does without delay until another one has loaded the model, which a thread of this process tries
    for as long as it takes. `on_loss(reason)` hears of the loss from that thread, and with "" of the return.
    Made by `RemoteRuntime.load`.
    """

    n_batch = Runtime.n_batch

    def __init__(
        self,
        config: DraftConfig,
        layout: Layout,
        on_progress: Callable[[float], None],
        on_loss: LossHandler,
    ) -> None:
        self.file = read(config.model.path)
        self.layout = layout
        self.device = layout.main
        self.n_threads = config.model.n_threads
        self.n_ctx = config.n_ctx
        self.hparams = models.for_file(self.file).hparams(self.file)
        self.n_vocab = self.hparams.n_vocab
        self.cache = MirroredCache(0, 0)
        self._config = config
        self._on_progress = on_progress
        self._on_loss = on_loss
        self._changed = threading.Condition()
        self._process: DraftProcess | None = None  # that loads the model, or has it
        self._ready: DraftProcess | None = None
        self._cached_in: DraftProcess | None = None  # the process that has what the cache says
        self._n_cells = 0
        self._was_ready = False
        self._n_failures = 0  # in a row, which make the next start wait
        self._lost = ""
        self._load_error: LuceboxError | None = None
        self._closing = threading.Event()
        # The system ends a process with the thread that started it: this one lives as long as they may.
        self._supervisor = threading.Thread(target=self._supervise, name="lucebox-draft-process", daemon=True)

    @classmethod
    def load(
        cls,
        config: DraftConfig,
        layout: Layout,
        *,
        on_progress: Callable[[float], None] = lambda fraction: None,
        on_loss: LossHandler = lambda reason: None,
    ) -> Self:
        """Starts the process and waits for the model to be loaded there, on the devices of `layout`.

        Raises what Runtime.load raises, WorkerError, and DraftLostError when the process ends.
        """
        runtime = cls(config, layout, on_progress, on_loss)
        runtime._supervisor.start()
        with runtime._changed:
            runtime._changed.wait_for(lambda: runtime._was_ready or runtime._load_error is not None)
        if runtime._load_error is not None:
            runtime.close()
            raise runtime._load_error
        runtime.renew()
        return runtime

    @property
    def pid(self) -> int | None:
        """The process, for diagnosis; None between two of them."""
        process = self._process
        return None if process is None else process.pid

    def lost(self) -> str:
        """Why nothing can be computed now, or "". From any thread."""
        return self._lost

    def renew(self) -> None:
        """To be called between drafts: if the model was loaded anew, the cache is empty from now on."""
        ready = self._ready
        if ready is not None and ready is not self._cached_in:
            n_sequences = self._config.n_sequences + self._config.n_spare_sequences
            self.cache, self._cached_in = MirroredCache(self._n_cells, n_sequences), ready

    def forward(self, rows: Rows) -> Output:
        """As Runtime.forward, of which the output is a copy; raises DraftLostError, too."""
        process = self._ready
        if process is None or process is not self._cached_in:
            raise DraftLostError(self._lost or "the draft model was loaded anew")
        self.cache.reserve_for_forward(rows)
        try:
            computed = process.compute(Forward(self.cache.take_operations(), pack_rows(rows)))
        except DraftLostError as error:
            raise DraftLostError(self._note_lost(process, error.message)) from None
        except BaseException:
            self.cache.drop_pending()
            raise
        assert computed.n_free == self.cache.n_free, "the caches of two processes disagree"
        wanting = np.flatnonzero(rows.wants)
        n = len(wanting)
        logits = process.results.view(0, n, computed.n_columns)
        hidden = None
        if computed.n_hidden:
            hidden = process.results.view(n * computed.n_columns, n, computed.n_hidden)
        return Output(logits, hidden, wanting, len(rows))

    def close(self) -> None:
        """Ends the process and frees what it held; idempotent."""
        with self._changed:
            self._closing.set()
            if self._process is not None:
                self._process.close()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        self._cached_in = None  # with the memory that was shared
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_lost(self, process: DraftProcess, reason: str) -> str:
        """Forgets `process`, which `reason` tells little of; returns what its last words tell."""
        with self._changed:
            if self._ready is process:
                self._ready = None
            self._changed.wait_for(lambda: bool(self._lost), REASON_TIMEOUT_S)
            return self._lost or reason

    def _supervise(self) -> None:
        """Keeps one process running, from the first on that loads the model, until closed."""
        while not self._closing.is_set():
            started_s = time.monotonic()
            try:
                self._run_process()
            except Exception as error:
                if not isinstance(error, LuceboxError | OSError):
                    logger.exception("the draft model's process cannot be supervised")
                if self._closing.is_set() or not self._tell_lost(error):
                    return
            if time.monotonic() - started_s > STEADY_S:
                self._n_failures = 0
            self._closing.wait(min(FIRST_BACKOFF_S * 2 ** min(self._n_failures, 8), MAX_BACKOFF_S))
            self._n_failures += 1

    def _run_process(self) -> None:
        """Runs one process to its end. Raises what kept it from loading, DraftLostError if it ended later."""
        n_floats = self.n_batch * (self.n_vocab + self.hparams.n_embd)
        process = DraftProcess(self._config, n_floats, _log_level())
        with self._changed:
            self._process = process
            if self._closing.is_set():
                process.close()
        was_loaded = False
        try:
            self._tell_ready(process, process.wait_loaded(self._show_progress))
            was_loaded = True
            process.wait()
        except DraftLostError:
            pass  # how it ended tells more
        finally:
            with self._changed:
                self._process = None
                if self._ready is process:
                    self._ready = None
            ending = process.reap(EXIT_TIMEOUT_S)
        if was_loaded and ending.is_lost_worker:  # for which the model is not to blame
            self._n_failures = 0
        raise DraftLostError(process.why_killed or str(ending))

    def _show_progress(self, fraction: float) -> None:
        """Of the first load only: later ones are nothing that anybody waits for."""
        if not self._was_ready:
            self._on_progress(fraction)

    def _tell_ready(self, process: DraftProcess, loaded: Loaded) -> None:
        with self._changed:
            was_lost, self._lost = bool(self._lost), ""
            self._n_cells, self._ready, self._was_ready = loaded.n_cells, process, True
            self._changed.notify_all()
        if was_lost:
            logger.warning("the draft model is back")
            self._on_loss("")

    def _tell_lost(self, error: Exception) -> bool:
        """False if there is nothing to come back to, as the first start failed."""
        reason = error.message if isinstance(error, LuceboxError) else str(error)
        with self._changed:
            was_lost = bool(self._lost)
            if self._was_ready:
                self._lost = f"the draft model was lost: {reason}"
            else:
                self._load_error = error if isinstance(error, LuceboxError) else EngineError(reason)
            self._changed.notify_all()
        if self._was_ready:
            if not was_lost:
                logger.warning("%s; decoding goes on without it until it is back", self._lost)
            self._on_loss(self._lost)
        return self._was_ready


def _log_level() -> str:
    """That of this process, as the other takes it."""
    name = logging.getLevelName(logger.getEffectiveLevel()).lower()
    return name if name in ("debug", "info", "warning", "error") else "info"
