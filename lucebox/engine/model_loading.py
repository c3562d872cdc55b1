"""Loads one model as its configuration says, in whichever process it is to live."""

from __future__ import annotations

from collections.abc import Callable

from lucebox.config import ModelConfig
from lucebox.ggml.library import load as load_library
from lucebox.runtime.runtime import Runtime


def load_model(
    config: ModelConfig,
    stage: str,
    n_ctx: int,
    n_sequences: int,
    on_progress: Callable[[float], None],
    *,
    n_spare_sequences: int = 0,
) -> Runtime:
    """The runtime of `config`; `stage` names it should ggml end the process. Raises as Runtime.load does."""
    load_library().abort_report.set_activity(f"loading the {stage}".encode())
    return Runtime.load(
        config.path,
        device=config.device,
        split=config.split,
        n_cpu_layers=config.n_cpu_layers,
        cpu_moe=config.cpu_moe,
        n_threads=config.n_threads,
        n_ctx=n_ctx,
        n_sequences=n_sequences,
        n_spare_sequences=n_spare_sequences,
        kv_type=config.kv_type,
        quantise=config.quantise,
        n_head_rows=config.n_head_rows,
        cpu_kernels=config.cpu_kernels,
        on_progress=on_progress,
    )
