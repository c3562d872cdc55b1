"""The engine's own process: `python -m lucebox.engine.child`, started by ProcessClient and by nobody else.

It ends when its parent does: a thread waits for the end of the connection, even while ggml computes.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from queue import SimpleQueue

import msgspec

from lucebox.config import EngineConfig
from lucebox.cores import pinned
from lucebox.engine.child_setup import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_ORPHANED,
    end_without_worker,
    report_aborts,
    set_up,
)
from lucebox.engine.messages import Degraded, Event, Failed, Loading, Message, Ping, Pong, Ready, Shutdown
from lucebox.engine.outbox import Outbox
from lucebox.engine.pulse import Pulse
from lucebox.errors import EngineError, LuceboxError
from lucebox.wire import Channel, MalformedMessageError

logger = logging.getLogger("lucebox.engine.child")


def main() -> int:
    """Serves one parent over the socket whose number is given; returns the exit status."""
    arguments = set_up("lucebox.engine.child", "engine")
    config = msgspec.json.decode(arguments.config, type=EngineConfig)
    channel: Channel[Message] = Channel(socket.socket(fileno=arguments.socket_fd), Message)  # type: ignore[arg-type]
    inbox: SimpleQueue[Message] = SimpleQueue()
    outbox = Outbox()
    pulse = Pulse()
    threading.Thread(target=_read, args=(channel, inbox, outbox, pulse), name="reader", daemon=True).start()
    writer = threading.Thread(target=_write, args=(channel, outbox), name="writer", daemon=True)
    writer.start()
    with pinned(config.target.cores):  # not the threads above
        status = _serve(config, arguments.abort_fd, inbox, outbox, pulse)
    outbox.close()
    writer.join()
    return status


def _serve(
    config: EngineConfig, abort_fd: int, inbox: SimpleQueue[Message], outbox: Outbox, pulse: Pulse
) -> int:
    try:
        report_aborts(abort_fd)
        from lucebox.engine.loader import load
        from lucebox.engine.loop import EngineLoop

        loaded = load(
            config,
            lambda stage, fraction: outbox.put(Loading(stage, fraction)),
            on_worker_lost=lambda reason: end_without_worker(reason, abort_fd),
            on_plan=outbox.put,
            on_loss=lambda reason: outbox.put(Degraded(reason)),
        )
        outbox.put(Ready(loaded.info))
        EngineLoop(
            loaded.stepper, loaded.admission, inbox, outbox.put, timeout_s=config.timeout_s, pulse=pulse
        ).run()
        loaded.keep_prefixes()
        loaded.close()
        return EXIT_OK
    except Exception as error:
        if not isinstance(error, LuceboxError):
            logger.exception("the engine failed")
        outbox.put(Failed.of(None, error))
        return EXIT_FAILED


def _read(channel: Channel[Message], inbox: SimpleQueue[Message], outbox: Outbox, pulse: Pulse) -> None:
    """Queues what arrives, and answers pings even while a forward runs.

    The end of the connection ends the process at once, whatever it is computing.
    """
    shut_down = False
    while True:
        try:
            message = channel.receive()
        except MalformedMessageError as error:
            logger.error("ignored a %s", error)
            continue
        except EngineError as error:
            logger.error("%s", error)
            message = None
        except Exception:
            logger.exception("the engine cannot read what its parent sends")
            os._exit(EXIT_FAILED)
        if message is None:
            os._exit(EXIT_OK if shut_down else EXIT_ORPHANED)
        if isinstance(message, Ping):
            outbox.put(Pong(pulse.busy_s))
            continue
        shut_down = shut_down or isinstance(message, Shutdown)
        inbox.put(message)


def _write(channel: Channel[Message], outbox: Outbox) -> None:
    event: Event | None
    while (event := outbox.take()) is not None:
        try:
            channel.send(event)
        except OSError:
            os._exit(EXIT_ORPHANED)
        except Exception:  # without a writer the parent would wait for ever
            logger.exception("the engine cannot send an event")
            os._exit(EXIT_FAILED)


if __name__ == "__main__":
    exit_status = main()
    logging.shutdown()
    os._exit(exit_status)  # at once, whatever grammar is still compiled
