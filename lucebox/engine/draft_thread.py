"""The thread that the draft model computes in, where it has a device of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

from lucebox.cores import pinned
from lucebox.engine.calibration import Model
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows

T = TypeVar("T")


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self.done.set()

    def result(self) -> T:
        self.done.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class DraftThread:
    """Runs what it is given in one thread, in order: the threads that ggml computes with belong to the one
    that calls it, and a connection to a worker takes one request at a time.

    Used by the engine's thread alone. A job under way ends before the next one begins.
    """

    def __init__(self, cpus: Sequence[int] = ()) -> None:
        """`cpus` are those that it is kept on, () for any."""
        self._cpus = cpus
        self._jobs: SimpleQueue[_Job[object] | None] = SimpleQueue()
        self._begun: _Job[None] | None = None
        self._thread = threading.Thread(target=self._run, name="lucebox-draft", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, in that thread."""
        return self._put(work).result()

    def begin(self, work: Callable[[], None]) -> None:
        """Starts `work` and returns; the one before it must have been waited for."""
        assert self._begun is None, "two jobs at a time"
        self._begun = self._put(work)

    def wait(self) -> bool:
        """Returns when no job is under way, and whether one was; raises what it raised."""
        job, self._begun = self._begun, None
        if job is not None:
            job.result()
        return job is not None

    def close(self) -> None:
        """Ends the thread behind the job under way. Idempotent."""
        self._jobs.put(None)
        self._thread.join()

    def _put(self, work: Callable[[], T]) -> _Job[T]:
        job = _Job(work)
        self._jobs.put(job)  # type: ignore[arg-type]
        return job

    def _run(self) -> None:
        with pinned(self._cpus):
            while (job := self._jobs.get()) is not None:
                job.run()


class ModelOnThread:
    """A model whose forwards run in `thread`, as calibration needs it."""

    def __init__(self, model: Model, thread: DraftThread) -> None:
        self.n_batch = model.n_batch
        self.n_ctx = model.n_ctx
        self.cache: Cache = model.cache
        self._model = model
        self._thread = thread

    def forward(self, rows: Rows) -> object:
        return self._thread.call(lambda: self._model.forward(rows))
