"""`lucebox devices`: what the models can run on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lucebox.ggml.devices import Device

HELP = "list the devices that models can run on"
WIDTH = 100  # columns, where no terminal says otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        metavar="HOST:PORT[,…]",
        help="list the devices of these `lucebox worker`s, too [default: LUCEBOX_WORKERS, else none]",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure how fast each one reads weights, which `auto` goes by",
    )


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from rich.console import Console

    from lucebox.ggml.devices import list_devices
    from lucebox.resolve import parse_workers

    workers = parse_workers(arguments.workers or environ.get("LUCEBOX_WORKERS"))
    with ExitStack() as undo:
        if workers:
            from lucebox.worker.client import connect

            for link in connect(workers, lambda reason: None):
                undo.callback(link.close)
        devices = list_devices()
        speeds = _measure(devices) if arguments.measure else {}
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(_table(devices, speeds))
    return 0


def _measure(devices: list[Device]) -> dict[int, float]:
    """GB/s by a device's number, measured now and kept for `auto`."""
    from lucebox.cores import physical_cores
    from lucebox.ggml.bandwidth import measure_and_keep
    from lucebox.paths import cache_dir

    folder = cache_dir() / "bandwidth"
    return {
        device.number: measure_and_keep(device, physical_cores(), folder)
        for device in devices
        if device.holds_models
    }


def _table(devices: list[Device], speeds: Mapping[int, float]) -> object:
    """A row for each device, with a column for speeds where there are any."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("number", justify="right")
    for name in ("name", "kind", "backend"):
        table.add_column(name, no_wrap=True)
    table.add_column("description")
    for name in ("free", "memory", *(["GB/s"] if speeds else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        place = f" at {device.worker}" if device.worker else ""
        row = [str(device.number), device.name, device.kind, device.backend, device.description + place]
        row += [_gibibytes(device.free_bytes), _gibibytes(device.total_bytes)]
        if speeds:
            row.append(f"{speeds[device.number]:,.1f}" if device.number in speeds else "")
        table.add_row(*row)
    return table


def _gibibytes(n_bytes: int) -> str:
    """Empty for none, as accelerators say who work in the CPU's."""
    return f"{n_bytes / 2**30:,.1f} GiB" if n_bytes else ""
