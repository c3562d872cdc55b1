"""`lucebox devices`: what the models can run on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

HELP = "list the devices that models can run on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from rich.console import Console
    from rich.table import Table

    from lucebox.ggml.devices import list_devices

    table = Table(box=None, pad_edge=False)
    table.add_column("number", justify="right")
    table.add_column("name")
    table.add_column("description")
    table.add_column("memory free", justify="right")
    table.add_column("memory", justify="right")
    for device in list_devices():
        memory = _mebibytes(device.free_bytes), _mebibytes(device.total_bytes)
        table.add_row(str(device.number), device.name, device.description, *memory)
    Console().print(table)
    return 0


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB"
