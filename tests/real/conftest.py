"""Tests on real model files, fetched once through the hub into the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox.hub import resolve


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """model_path("qwen2.5-coder-0.5b"): the file of a catalogue model."""
    paths: dict[str, Path] = {}

    def fetch(name: str) -> Path:
        if name not in paths:
            paths[name] = resolve(name)
        return paths[name]

    return fetch
