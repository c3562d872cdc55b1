from __future__ import annotations

from pathlib import Path

import pytest

from lucebox.paths import cache_dir


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LUCEBOX_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"LUCEBOX_CACHE": "~/a"}, Path.home() / "a"),
        ({"LUCEBOX_CACHE": "a"}, Path.cwd() / "a"),
        ({"LUCEBOX_CACHE": "", "XDG_CACHE_HOME": "/b"}, Path("/b/lucebox")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache/lucebox"),
        ({}, Path.home() / ".cache/lucebox"),
    ],
)
def test_cache_dir(environ: dict[str, str], expected: Path) -> None:
    assert cache_dir(environ) == expected
