"""Loads the draft model: here, or in a process of its own where it needs workers that the target does not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lucebox.config import EngineConfig
from lucebox.engine.draft_messages import DraftConfig
from lucebox.engine.model_loading import load_model
from lucebox.engine.remote_runtime import LossHandler, RemoteRuntime
from lucebox.gguf import read
from lucebox.runtime.layout import Layout
from lucebox.runtime.runtime import Runtime
from lucebox.worker.client import WorkerLink

logger = logging.getLogger(__name__)

DraftRuntime = Runtime | RemoteRuntime


def divide_workers(
    workers: Sequence[WorkerLink], target: Layout, draft: Layout | None
) -> tuple[list[WorkerLink], list[WorkerLink]]:
    """The workers that this process needs, and those that the draft model's own process does.

    A process that uses a worker ends with it. A draft model that shares a worker with the target stays with
    it, as workers serve one process at a time. All that this process does not need are closed.
    """
    ours, theirs = _workers_of(target), set() if draft is None else _workers_of(draft)
    if ours & theirs:
        ours, theirs = ours | theirs, set()
    for link in workers:
        if str(link.address) not in ours:
            link.close()
    return (
        [link for link in workers if str(link.address) in ours],
        [link for link in workers if str(link.address) in theirs],
    )


def load_draft(
    config: EngineConfig,
    n_wanted: int,
    n_spare: int,
    layout: Layout,
    workers: Sequence[WorkerLink],
    on_progress: Callable[[float], None],
    on_loss: LossHandler,
) -> DraftRuntime:
    """The draft model on `layout`, in a process of its own if that is to connect to `workers`.

    Its cache has `n_wanted` tokens for each sequence, if the model was trained for so many, and `n_spare`
    sequences more. Raises as Runtime.load and RemoteRuntime.load do.
    """
    assert config.draft is not None
    with read(config.draft.path) as file:
        n_ctx = min(n_wanted, file.n_ctx_train)
    if n_ctx < n_wanted:
        logger.warning(
            "the draft model was trained for %d tokens: sequences that grow longer go on without drafts",
            n_ctx,
        )
    if not workers:
        return load_model(
            config.draft, "draft model", n_ctx, config.n_parallel, on_progress, n_spare_sequences=n_spare
        )
    remote = DraftConfig(
        model=config.draft,
        n_ctx=n_ctx,
        n_sequences=config.n_parallel,
        n_spare_sequences=n_spare,
        workers=tuple((str(link.address), link.first_number) for link in workers),
    )
    return RemoteRuntime.load(remote, layout, on_progress=on_progress, on_loss=on_loss)


def _workers_of(layout: Layout) -> set[str]:
    return {device.worker for device in layout.devices if device.worker is not None}
