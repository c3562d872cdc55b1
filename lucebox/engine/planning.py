"""What an engine's models will take of the devices, together, before either is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from msgspec.structs import replace

from lucebox.config import EngineConfig
from lucebox.engine.messages import DeviceUse
from lucebox.ggml.devices import Device, list_devices
from lucebox.runtime.fit import Fitted, fit
from lucebox.runtime.memory import free_memory, share_memory
from lucebox.runtime.plan import JointPlan, Planner

logger = logging.getLogger(__name__)

TARGET, DRAFT = "target", "draft"


def draft_context(n_ctx: int, *, shares_vocabulary: bool) -> int:
    """Tokens of context that a draft model should have for a target's `n_ctx`: another vocabulary may need
    more of them for the same text."""
    return n_ctx if shares_vocabulary else n_ctx * 5 // 4


class EnginePlanner:
    """Plans the models of one engine for changed contexts, KV types and devices. Owns their files while it is
    open; nothing is loaded. Raises as Planner does."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        shares_vocabulary: bool,
        devices: Sequence[Device] | None = None,
        free_bytes: Mapping[int, int] | None = None,
    ) -> None:
        devices = list_devices() if devices is None else devices
        self._devices = devices
        self._free_bytes = free_memory(devices) if free_bytes is None else free_bytes
        self._shares_vocabulary = shares_vocabulary
        with ExitStack() as opened:
            self._target = opened.enter_context(Planner(config.target, devices))
            self._draft: Planner | None = None
            if config.draft is not None:
                self._draft = opened.enter_context(Planner(config.draft, devices))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; idempotent."""
        self._opened.close()

    def plan(self, config: EngineConfig) -> JointPlan:
        """The target's plan, and the draft model's on what it leaves."""
        target = self._target.plan(config.target, config.n_ctx, config.n_parallel, self._free_bytes)
        models = {TARGET: target}
        if self._draft is not None and config.draft is not None:
            left = dict(self._free_bytes)
            for device in self._devices:
                left[device.pointer] -= sum(
                    part.needed_bytes for part in target.devices if share_memory(part.device, device)
                )
            n_wanted = draft_context(config.n_ctx, shares_vocabulary=self._shares_vocabulary)
            n_ctx = min(n_wanted, self._draft.hparams.n_ctx_train)
            beside = () if config.overlap == "off" else target.layout.computing
            models[DRAFT] = self._draft.plan(config.draft, n_ctx, config.n_parallel, left, beside)
        return JointPlan(models, self._free_bytes)


def settle(config: EngineConfig, *, shares_vocabulary: bool) -> Fitted:
    """`config` with the devices that its models go to, and with what had to change for them to fit.

    Raises OutOfMemoryError with the flags that would make them fit, and what the models' files or devices
    have against it.
    """
    with EnginePlanner(config, shares_vocabulary=shares_vocabulary) as planner:
        fitted = fit(config, planner.plan)
    if fitted.changes:
        logger.warning("to fit into memory, as if by: %s", " ".join(fitted.changes))
    return Fitted(pinned(fitted.config, fitted.plan), fitted.plan, fitted.changes)


def pinned(config: EngineConfig, plan: JointPlan) -> EngineConfig:
    """`config` with its models on the devices that were planned."""

    draft = None if config.draft is None else plan.models[DRAFT].pinned(config.draft)
    return replace(config, target=plan.models[TARGET].pinned(config.target), draft=draft)


def device_uses(plan: JointPlan) -> tuple[DeviceUse, ...]:
    """The plan as it is told to clients."""
    return tuple(
        DeviceUse(
            device=device.name,
            role=role,
            n_layers=part.n_layers,
            weights_bytes=part.weights_bytes,
            mapped_bytes=part.mapped_bytes,
            kv_bytes=part.kv_bytes,
            compute_bytes=part.compute_bytes,
            free_bytes=plan.free_bytes[device.pointer],
            elsewhere=part.elsewhere,
        )
        for device in plan.devices()
        for role, part in plan.parts(device).items()
    )
