"""What importing Lucebox costs, and options that are none."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lucebox


def test_importing_lucebox_loads_no_engine() -> None:
    code = "import lucebox, sys; print([m for m in sys.modules if m.startswith(('lucebox.', 'numpy'))])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_unknown_engine_options_raise_before_anything_is_loaded() -> None:
    with pytest.raises(TypeError, match="ctx_len"):
        lucebox.Engine("no-such-model", ctx_len=7)
