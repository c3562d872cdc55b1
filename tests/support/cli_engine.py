"""The engine that commands open, replaced by a test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Protocol, TypeVar

import pytest

from lucebox.config import EngineOptions


class TakesOptions(Protocol):
    options: EngineOptions | None


EngineT = TypeVar("EngineT", bound=TakesOptions)


def opened_as(fake: EngineT, monkeypatch: pytest.MonkeyPatch) -> EngineT:
    """`fake`, which commands get from now on, with the options that they would have opened an engine with."""

    def from_options(options: EngineOptions, **_: object) -> EngineT:
        fake.options = options
        return fake

    monkeypatch.setattr("lucebox.api.Engine", SimpleNamespace(from_options=from_options))
    return fake
