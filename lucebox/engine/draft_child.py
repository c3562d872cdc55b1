"""The process of a draft model: `python -m lucebox.engine.draft_child`, started by RemoteRuntime alone.

What ggml does to a process whose worker is lost, it does to this one, and the engine goes on without drafts.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from lucebox.cores import pinned
from lucebox.engine.child_setup import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_ORPHANED,
    end_without_worker,
    report_aborts,
    set_up,
)
from lucebox.engine.draft_messages import (
    Computed,
    DraftConfig,
    Forward,
    Loaded,
    apply,
    unpack_rows,
)
from lucebox.engine.messages import Failed, Loading
from lucebox.engine.shared_results import SharedResults
from lucebox.errors import LuceboxError
from lucebox.wire import Channel

if TYPE_CHECKING:
    from lucebox.runtime.runtime import Runtime

logger = logging.getLogger("lucebox.engine.draft_child")

PULSE_S = 0.5


def main() -> int:
    """Serves one engine over the socket whose number is given; returns the exit status."""
    arguments = set_up("lucebox.engine.draft_child", "draft")
    config = msgspec.json.decode(arguments.config, type=DraftConfig)
    connection = socket.socket(fileno=arguments.socket_fd)
    results = SharedResults(arguments.memory_fd)
    os.close(arguments.memory_fd)
    threading.Thread(target=_beat, args=(results, connection), name="pulse", daemon=True).start()
    channel: Channel[Forward] = Channel(connection, Forward)
    try:
        report_aborts(arguments.abort_fd)
        with pinned(config.model.cores), _load(config, channel, arguments.abort_fd) as runtime:
            channel.send(Loaded(runtime.cache.n_cells))
            _serve(runtime, channel, results)
    except ConnectionError:
        return EXIT_ORPHANED
    except Exception as error:
        if not isinstance(error, LuceboxError):
            logger.exception("the draft model failed")
        channel.send(Failed.of(None, error))
        return EXIT_FAILED
    return EXIT_OK


def _load(config: DraftConfig, channel: Channel[Forward], abort_fd: int) -> Runtime:
    from lucebox.engine.model_loading import load_model
    from lucebox.worker.client import connect

    for address, first_number in config.workers:
        connect([address], lambda reason: end_without_worker(reason, abort_fd), first_number=first_number)
    return load_model(
        config.model,
        "draft model",
        config.n_ctx,
        config.n_sequences,
        lambda fraction: channel.send(Loading("draft model", fraction)),
        n_spare_sequences=config.n_spare_sequences,
    )


def _serve(runtime: Runtime, channel: Channel[Forward], results: SharedResults) -> None:
    """Computes until the engine closes the connection."""
    while (forward := channel.receive()) is not None:
        try:
            channel.send(_compute(runtime, forward, results))
        except LuceboxError as error:
            runtime.cache.drop_pending()
            channel.send(Failed.of(None, error))


def _compute(runtime: Runtime, forward: Forward, results: SharedResults) -> Computed:
    for operation in forward.operations:
        apply(operation, runtime.cache)
    output = runtime.forward(unpack_rows(forward.rows))
    n_rows, n_columns = output.logits.shape
    results.view(0, n_rows, n_columns)[:] = output.logits
    if output.hidden is None:
        return Computed(runtime.cache.n_free, n_columns)
    n_hidden = output.hidden.shape[1]
    results.view(n_rows * n_columns, n_rows, n_hidden)[:] = output.hidden
    return Computed(runtime.cache.n_free, n_columns, n_hidden)


def _beat(results: SharedResults, connection: socket.socket) -> None:
    """Shows the engine that this process lives; ends it with the connection, whatever it is computing."""
    poll = select.poll()
    poll.register(connection, 0)  # its end is reported unasked
    while not poll.poll(1000.0 * PULSE_S):
        results.beat()
    os._exit(EXIT_ORPHANED)


if __name__ == "__main__":
    sys.exit(main())
