"""Workers killed, stopped and cut off at random moments of streams: nothing hangs, lies or dies."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.tiny_models import write_tiny
from tests.support.worker_losses import Place, server_on_worker
from tests.support.workers import FreezingProxy, WorkerProcess

SEED = 20261202
# Kills are cheap, and a loss that shows by silence alone takes 4 s to be believed.
IN_CI = ("kill",) * 5 + ("away",) + ("stop",) * 2 + ("cut off",) * 2


def lose_often(folder: Path, role: str, devices: str, kinds: list[str], seed: int) -> list[str]:
    """Loses the worker of a server of its own once for each of `kinds`; what became of the streams."""
    rng = random.Random(seed)
    options = {"n_ctx": 512, "seed": 3}
    models = (
        write_tiny(folder / f"{role}-target.gguf", "qwen2", **options),
        write_tiny(folder / f"{role}-draft.gguf", "qwen2", perturbation=0.1, **options),
    )
    with ExitStack() as stack:
        worker = WorkerProcess()
        proxy = stack.enter_context(FreezingProxy(worker.port))
        server = server_on_worker(folder, proxy, role, models, devices)
        place = Place(server, worker, proxy, needs_worker=role == "target")
        stack.callback(lambda: place.worker.kill())
        stack.enter_context(place.server)
        try:
            place.measure()
            for kind in rng.sample(kinds, len(kinds)):
                place.lose(kind, rng)
        finally:
            print(f"{role} on {devices}:", *place.told, sep="\n  ")
        words = place.server.words()
    assert "Traceback" not in words, words
    return place.told


def lose_in_both(folder: Path, kinds: list[str]) -> None:
    with ThreadPoolExecutor() as pool:
        draft = pool.submit(lose_often, folder, "draft", "RPC0", kinds, SEED)
        target = pool.submit(lose_often, folder, "target", "RPC0,CPU", kinds, SEED + 1)
        assert len(draft.result() + target.result()) == 2 * len(kinds)


@pytest.mark.slow
def test_twenty_losses_cost_no_text_and_no_server(tmp_path: Path) -> None:
    """Ten times the worker of the draft model, ten times that of half the target."""
    lose_in_both(tmp_path, list(IN_CI))
