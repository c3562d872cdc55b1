"""What an engine is busy with, as it tells its clients from time to time."""

from __future__ import annotations

from typing import Literal

import msgspec

SlotState = Literal["idle", "prompt", "decoding"]


class SlotLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sequences that may run at the same time, by its number.

    `n_prompt` tokens were asked about, `n_cached` of them did not have to be computed, and `n_tokens` are
    prompt and answer so far.
    """

    id: int
    state: SlotState = "idle"
    request: str = ""
    n_prompt: int = 0
    n_cached: int = 0
    n_tokens: int = 0


class EngineLoad(msgspec.Struct, tag="load", frozen=True, kw_only=True):
    """Requests and key/value cells of the target at one moment. Who waits does so for a slot, or for its
    grammar to be compiled.

    Of `n_cells`, `n_cells_used` hold the tokens of running requests or of the prefix cache, and
    `n_cells_cached` are held by the latter, whoever else uses them.
    """

    n_running: int = 0
    n_waiting: int = 0
    n_cells: int = 0
    n_cells_used: int = 0
    n_cells_cached: int = 0
    slots: tuple[SlotLoad, ...] = ()
