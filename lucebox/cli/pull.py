"""`lucebox pull`: fetch a model now, so that nothing waits for it later."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

HELP = "fetch a model, and print where it is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name, or hf:owner/repo/file.gguf")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.progress import Bars
    from lucebox.resolve import find_model

    with Bars() as bars:
        path = find_model(arguments.model, on_progress=bars.on_download)
    print(path)
    return 0
