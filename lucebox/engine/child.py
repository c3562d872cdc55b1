"""The engine's own process: `python -m lucebox.engine.child`, started by ProcessClient and by nobody else.

It ends when its parent does: a thread waits for the end of the connection, even while ggml computes.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from queue import SimpleQueue

import msgspec

from lucebox.config import EngineConfig
from lucebox.engine.messages import Event, Failed, Loading, Message, Ready, Shutdown
from lucebox.engine.outbox import Outbox
from lucebox.errors import EngineError, LuceboxError
from lucebox.wire import Channel, MalformedMessageError

logger = logging.getLogger("lucebox.engine.child")

EXIT_OK = 0
EXIT_FAILED = 3  # a Failed event said why
EXIT_ORPHANED = 4
PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serves one parent over the socket whose number is given; returns the exit status."""
    arguments = _parser().parse_args()
    _die_with_parent(arguments.parent)
    # Ctrl-C and service managers signal the whole group; the parent ends this process when it has drained.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(
        level=arguments.log_level.upper(),
        format="%(levelname)s engine: %(name)s: %(message)s",
        stream=sys.stderr,
    )
    config = msgspec.json.decode(arguments.config, type=EngineConfig)
    channel: Channel[Message] = Channel(socket.socket(fileno=arguments.socket_fd), Message)  # type: ignore[arg-type]
    inbox: SimpleQueue[Message] = SimpleQueue()
    outbox = Outbox()
    threading.Thread(target=_read, args=(channel, inbox), name="reader", daemon=True).start()
    writer = threading.Thread(target=_write, args=(channel, outbox), name="writer", daemon=True)
    writer.start()
    status = _serve(config, arguments.abort_fd, inbox, outbox)
    outbox.close()
    writer.join()
    return status


def _serve(config: EngineConfig, abort_fd: int, inbox: SimpleQueue[Message], outbox: Outbox) -> int:
    try:
        _report_aborts(abort_fd)
        from lucebox.engine.loader import load
        from lucebox.engine.loop import EngineLoop

        loaded = load(config, lambda stage, fraction: outbox.put(Loading(stage, fraction)))
        outbox.put(Ready(loaded.info))
        EngineLoop(loaded.stepper, loaded.admission, inbox, outbox.put).run()
        loaded.stepper.close()
        return EXIT_OK
    except Exception as error:
        if not isinstance(error, LuceboxError):
            logger.exception("the engine failed")
        outbox.put(Failed.of(None, error))
        return EXIT_FAILED


def _read(channel: Channel[Message], inbox: SimpleQueue[Message]) -> None:
    """Queues what arrives. The end of the connection ends the process at once, whatever it is computing."""
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


def _report_aborts(fd: int) -> None:
    """ggml's last words go to `fd` before it ends this process."""
    from lucebox.ggml.library import load

    load().abort_report.write_to(fd)


def _die_with_parent(parent: int) -> None:
    """Asks Linux for SIGKILL when the parent ends; elsewhere the end of the connection has to do."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lucebox.engine.child", description=__doc__)
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    parser.add_argument("--socket-fd", type=int, required=True, help="stream socket to the parent")
    parser.add_argument("--abort-fd", type=int, required=True, help="pipe that takes ggml's last words")
    parser.add_argument("--parent", type=int, required=True, help="process id of the parent")
    parser.add_argument("--log-level", default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
