"""Which cores the threads of each model are kept on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from lucebox.config import ModelConfig, Overlap, Pinning
from lucebox.cores import can_pin, choose_cpus, logical_cores, open_cores, partition

logger = logging.getLogger(__name__)


def pin(
    target: ModelConfig,
    draft: ModelConfig | None,
    pinning: Pinning,
    *,
    overlap: Overlap,
    workers: Sequence[str],
) -> tuple[ModelConfig, ModelConfig | None]:
    """Both with their `cores`. Warns of threads that hold each other up.

    Models on different devices may compute at the same time, and get cores of their own if there are enough.
    A worker on this machine knows nothing of us: it keeps to the last cores (see lucebox.cores.partition).
    `auto` pins only beside such a worker, where threads would get into each other's way.
    """
    _warn_of_many_threads(target, draft)
    if pinning == "off":
        return target, draft
    if not can_pin():
        if pinning == "on":
            logger.warning("this system keeps no threads on cores: --pin-threads does nothing")
        return target, draft
    cores = open_cores()
    if draft is None or draft.device == target.device or overlap == "off":
        if pinning == "auto":
            return target, draft
        n_threads = max(model.n_threads for model in (target, draft) if model is not None)
        cpus = choose_cpus(cores, n_threads)  # one after the other, from one thread
        return _on(target, cpus), None if draft is None else _on(draft, cpus)
    if pinning == "auto" and not any(_is_here(worker) for worker in workers):
        return target, draft
    parts = partition(cores, target.n_threads, draft.n_threads)
    if parts is None:
        logger.log(
            logging.WARNING if pinning == "on" else logging.INFO,
            "%d and %d threads are not kept on cores: there are %d, too few for each to have its own",
            target.n_threads,
            draft.n_threads,
            len(cores),
        )
        return target, draft
    return _on(target, parts[0]), _on(draft, parts[1])


def _on(model: ModelConfig, cpus: tuple[int, ...]) -> ModelConfig:
    return msgspec.structs.replace(model, cores=cpus)


def _is_here(worker: str) -> bool:
    host = worker.rpartition(":")[0]
    return host == "localhost" or host.startswith("127.")


def _warn_of_many_threads(target: ModelConfig, draft: ModelConfig | None) -> None:
    n_cores = logical_cores()
    for flag, model in (("--threads", target), ("--draft-threads", draft)):
        if model is not None and model.n_threads > n_cores:
            logger.warning(
                "%s %d is more than the %d cores that are open to this process, which is slower than using "
                "them alone",
                flag,
                model.n_threads,
                n_cores,
            )
