"""What all tiers of tests share: nothing of the user's own settings reaches a test."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """LUCEBOX_* flags of the caller would change what is tested; where caches and libraries lie may stay."""
    for name in list(os.environ):
        if name.startswith("LUCEBOX_") and name not in (
            "LUCEBOX_CACHE",
            "LUCEBOX_GGML_LIB",
            "LUCEBOX_GGML_SOURCE",
        ):
            monkeypatch.delenv(name)
