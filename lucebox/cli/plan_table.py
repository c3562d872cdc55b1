"""What models will take of the devices, as a table on stdout."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from lucebox.ggml.devices import Device
from lucebox.runtime.plan import DevicePlan, JointPlan

_COLUMNS = ("layers", "weights", "KV", "compute", "sum", "free", "mapped")
_MIB = 2**20


def show_plan(plan: JointPlan) -> None:
    """A row for each model on each device, and one for their sum where there are several."""
    print("\nplan, in MiB")
    for role, model in plan.models.items():
        print(f"{role}: {model.n_ctx:,} tokens, {model.n_cells:,} cells of {model.kv_type}")
    table = Table(box=None, pad_edge=False)
    table.add_column("device", no_wrap=True)
    table.add_column("model", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for device in plan.devices():
        for cells in _rows(plan, device):
            table.add_row(*cells)
    Console(markup=False, highlight=False).print(table)
    for line in _elsewhere(plan):
        print(line)


def _rows(plan: JointPlan, device: Device) -> Iterator[tuple[str, ...]]:
    parts = plan.parts(device)
    free = _mebibytes(plan.free_bytes[device.pointer])
    for i, (role, part) in enumerate(parts.items()):
        is_only = len(parts) == 1
        yield device.name if i == 0 else "", role, *_figures(part, free if is_only else "")
    if len(parts) > 1:
        needed = _mebibytes(plan.needed_bytes(device))
        yield "", "both", "", "", "", "", needed, free, ""


def _figures(part: DevicePlan, free: str) -> tuple[str, ...]:
    taken = (part.weights_bytes, part.kv_bytes, part.compute_bytes, part.needed_bytes)
    return str(part.n_layers), *map(_mebibytes, taken), free, _mebibytes(part.mapped_bytes)


def _elsewhere(plan: JointPlan) -> Iterator[str]:
    for role, model in plan.models.items():
        for part in model.devices:
            if part.elsewhere:
                yield f"{part.device.name} lacks, so that the CPU computes for the {role}: " + ", ".join(
                    part.elsewhere
                )


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / _MIB:,.0f}"
