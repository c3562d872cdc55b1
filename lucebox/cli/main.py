"""Parses the command line, runs the verb, and turns every LuceboxError into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from lucebox import __version__, terminal
from lucebox.cli import bench, chat, devices, generate, inspect, pull, serve, simulate, worker
from lucebox.errors import ConfigError, LuceboxError
from lucebox.flags import ArgumentParser


class Command(Protocol):
    """What a verb's file holds. The file's name is the verb."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, environ: Mapping[str, str]) -> int: ...


COMMANDS: Mapping[str, Command] = {
    "serve": serve,
    "chat": chat,
    "generate": generate,
    "bench": bench,
    "simulate": simulate,
    "devices": devices,
    "inspect": inspect,
    "pull": pull,
    "worker": worker,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `lucebox ARGV…`. Returns the exit code: 0, 1 for a failure, 2 for a wrong command line."""
    terminal.prepare_streams()
    try:
        arguments = parser().parse_args(argv)
        logging.basicConfig(level=logging.WARNING, format="lucebox: %(message)s")
        status = COMMANDS[arguments.command].run(arguments, os.environ)
        sys.stdout.flush()
        return status
    except LuceboxError as error:
        terminal.show_error(error)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read the output has gone, and knows
            terminal.show_error(LuceboxError(str(error)))
        # Python would complain again when it flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> ArgumentParser:
    """The parser of every verb."""
    top = ArgumentParser(
        prog="lucebox",
        description="Faster local models by exact speculation: a small model guesses, a large one verifies.",
    )
    top.add_argument("--version", action=_Version)
    verbs = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        verb = verbs.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(verb)
    return top


class _Version(argparse.Action):
    """Prints the installed version and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"lucebox {__version__}")
        parser.exit()
