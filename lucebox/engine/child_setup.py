"""What the processes of an engine begin and end with, whoever started them."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys

from lucebox import logs

EXIT_OK = 0
EXIT_FAILED = 3  # a Failed event said why
EXIT_ORPHANED = 4
EXIT_WORKER_LOST = 5  # the last words say why
PR_SET_PDEATHSIG = 1


def set_up(module: str, role: str) -> argparse.Namespace:
    """Reads the arguments that ChildProcess gives, and ties this process to its parent's life.

    `role` is who speaks in the log.
    """
    arguments = _parser(module).parse_args()
    _die_with_parent(arguments.parent)
    # Ctrl-C and service managers signal the whole group; the parent ends this process when it has drained.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logs.configure(arguments.log_level, arguments.log_format, role)
    return arguments


def report_aborts(fd: int) -> None:
    """ggml's last words go to `fd` before it ends this process."""
    from lucebox.ggml.library import load

    load().abort_report.write_to(fd)


def end_without_worker(reason: str, fd: int) -> None:
    """Ends this process at once: its memory is on a worker that is gone, and ggml may wait for it for ever.

    `reason` goes to `fd`, as ggml's last words would. From any thread.
    """
    with contextlib.suppress(OSError):
        os.write(fd, reason.encode("utf-8", "replace"))
    os._exit(EXIT_WORKER_LOST)


def _die_with_parent(parent: int) -> None:
    """Asks Linux for SIGKILL when the parent ends; elsewhere the end of the connection has to do."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def _parser(module: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=module)
    parser.add_argument("--config", required=True, help="what to serve, as JSON")
    parser.add_argument("--socket-fd", type=int, required=True, help="stream socket to the parent")
    parser.add_argument("--abort-fd", type=int, required=True, help="pipe that takes the last words")
    parser.add_argument("--memory-fd", type=int, help="file of the memory that is shared with the parent")
    parser.add_argument("--parent", type=int, required=True, help="process id of the parent")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    return parser
