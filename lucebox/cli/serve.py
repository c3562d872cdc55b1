"""`lucebox serve`: the same as `python -m lucebox.server`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from lucebox import flags
from lucebox.config import ServerOptions, add_model_argument, server_options, take_model

HELP = "serve the model at an OpenAI-compatible HTTP API"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    flags.add_arguments(parser, ServerOptions)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.server import serve

    take_model(arguments, arguments.model)
    return serve(server_options(arguments, environ))
