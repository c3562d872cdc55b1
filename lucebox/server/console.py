"""What a server that starts tells its user, in its log: the plan and the address."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from lucebox import logs
from lucebox.config import KEEP, ModelConfig, ServerConfig
from lucebox.engine.messages import DeviceUse, EngineInfo, ModelInfo, Planned
from lucebox.server.host import is_every_address

_SPACES = re.compile(" +")

logger = logging.getLogger(__name__)

Say = Callable[[str], None]


def say(line: str) -> None:
    """A line of the log; columns are for people."""
    logger.info("%s", line if logs.current_format() == "text" else _SPACES.sub(" ", line))


def say_plan(config: ServerConfig, say: Say = say) -> None:
    """One line each for what will be loaded, before it is."""
    engine = config.engine
    say(f"target   {config.model_alias} ({Path(engine.target.path).name}), device {engine.target.device}")
    say(f"draft    {_draft(engine.draft)}")
    how = f"draft length {engine.draft_length}, acceptance {engine.acceptance}"
    say(f"guesses  by {' + '.join(engine.drafters)}, {how}" if engine.drafters else "guesses  none")
    lanes = "one sequence" if engine.n_parallel == 1 else f"{engine.n_parallel} sequences"
    threads = "1 thread" if engine.target.n_threads == 1 else f"{engine.target.n_threads} threads"
    say(f"context  {engine.n_ctx} tokens, {lanes} at a time, KV cache {engine.target.kv_type}, {threads}")


def say_memory(planned: Planned, say: Say = say) -> None:
    """One line for each device that the models go to, and for what it cannot compute, and one for what had to
    change for the models to fit."""
    for device, uses in groupby(planned.memory, key=lambda use: use.device):
        here = list(uses)
        say(f"memory   {_memory(device, here)}")
        if lacking := sorted({operation for use in here for operation in use.elsewhere}):
            say(f"lacking  {device} leaves {', '.join(lacking)} to the CPU")
    if planned.changes:
        say(f"fitted   by {' '.join(planned.changes)}")


def say_ready(info: EngineInfo, host: str, url: str | None, say: Say = say) -> None:
    """`url` opens on this machine, and is None where somebody else made the socket, and tells of it."""
    models = [_loaded("target", info.target)] + ([_loaded("draft", info.draft)] if info.draft else [])
    say(f"ready    in {info.load_ms / 1000:.1f} s: {', '.join(models)}")
    if url is not None:
        if is_every_address(host):
            say(f"listens  at {host}, every address of this machine")
        say(f"page     {url}")
        say(f"address  {url}/v1 (Ctrl-C stops)")


def _loaded(role: str, model: ModelInfo) -> str:
    return f"{role} on {model.device} ({model.n_bytes / 2**20:,.0f} MiB)"


def _memory(device: str, uses: Sequence[DeviceUse]) -> str:
    parts = ", ".join(
        f"{use.role} {_mib(use.needed_bytes)}"
        + (f" + {_mib(use.mapped_bytes)} mapped" if use.mapped_bytes else "")
        for use in uses
    )
    needed = sum(use.needed_bytes for use in uses)
    return f"{device}: {_mib(needed)} of {_mib(uses[0].free_bytes)} MiB free ({parts})"


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f}"


def _draft(model: ModelConfig | None) -> str:
    if model is None:
        return "no model"
    parts = [Path(model.path).name, f"device {model.device}"]
    if model.quantise != KEEP:
        parts.append(f"weights {model.quantise}")
    if model.n_head_rows is not None:
        parts.append(f"the first {model.n_head_rows} tokens")
    return ", ".join(parts)
