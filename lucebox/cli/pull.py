"""`lucebox pull`: fetch a model now, so that nothing waits for it later."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from lucebox.cli.terminal import download_progress

HELP = "fetch a model, and print where it is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name, or hf:owner/repo/file.gguf")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.resolve import find_model

    with download_progress() as on_progress:
        path = find_model(arguments.model, on_progress=on_progress)
    print(path)
    return 0
