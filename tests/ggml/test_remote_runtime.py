"""A model in a process of its own: the same numbers, the same cache, and what becomes of it when it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lucebox.config import ModelConfig
from lucebox.engine import draft_process, remote_runtime
from lucebox.engine.draft_messages import DraftConfig
from lucebox.engine.remote_runtime import RemoteRuntime
from lucebox.errors import DraftLostError, EngineError, ModelFileError, OutOfCellsError
from lucebox.ggml.devices import find_device
from lucebox.runtime.cache import Cache
from lucebox.runtime.layout import Layout
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support import waiting
from tests.support.tiny_models import write_tiny

eventually = partial(waiting.eventually, timeout_s=30.0)

N_CTX = 256
N_SEQUENCES = 3


def config_of(path: Path, n_ctx: int = N_CTX) -> DraftConfig:
    model = ModelConfig(path=str(path), device="CPU", n_threads=1, kv_type="f32")
    return DraftConfig(model=model, n_ctx=n_ctx, n_sequences=N_SEQUENCES)


def layout() -> Layout:
    return Layout.single(find_device("CPU"), 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "draft.gguf")


@pytest.fixture
def losses() -> list[str]:
    return []


@pytest.fixture
def remote(model: Path, losses: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteRuntime]:
    monkeypatch.setattr(remote_runtime, "FIRST_BACKOFF_S", 0.01)
    fractions: list[float] = []
    with RemoteRuntime.load(
        config_of(model), layout(), on_progress=fractions.append, on_loss=losses.append
    ) as remote:
        assert fractions[-1] == 1.0
        fractions.clear()
        yield remote
        assert not fractions, "a model that comes back is loaded in silence"


def send_signal(remote: RemoteRuntime, number: signal.Signals) -> int:
    pid = remote.pid
    assert pid is not None
    os.kill(pid, number)
    return pid


def steps(cache: Cache) -> Iterator[Rows]:
    """Forwards of every kind; what is between them is done to `cache` when the next one is asked for."""
    yield Rows.chain(0, list(range(70)), 0)
    cache.commit(0, range(70))
    cache.fork(0, 1)
    yield Rows.tree(0, [1, 2, 3, 4], [-1, 0, 0, 1], 70)
    cache.commit(0, [0, 2])
    yield Rows.concatenate(
        [Rows.chain(0, [7], 72), Rows.chain(1, [8, 9], 70, want_all=Want.LOGITS), Rows.chain(2, [5], 0)]
    )
    cache.commit(1, [1, 2])
    cache.release(2)  # whose row is pending
    cache.truncate(0, 50)
    yield Rows.chain(0, [11, 12], 50, want_all=Want.HIDDEN)
    cache.drop_pending()
    cache.reserve(Rows.chain(2, np.zeros(20, np.int32), 0))
    cache.commit(2, range(20))
    yield Rows.chain(1, [3], 72)
    cache.release(1)
    yield Rows.chain(2, [4], 20)


def test_it_computes_what_a_runtime_does(remote: RemoteRuntime, model: Path) -> None:
    with Runtime.load(
        model, device="CPU", n_threads=1, n_ctx=N_CTX, n_sequences=N_SEQUENCES, kv_type="f32"
    ) as local:
        assert (remote.n_batch, remote.n_ctx, remote.n_vocab) == (local.n_batch, local.n_ctx, local.n_vocab)
        assert remote.hparams == local.hparams
        assert str(remote.device) == str(local.device)
        assert remote.cache.n_cells == local.cache.n_cells
        for theirs, ours in zip(steps(remote.cache), steps(local.cache), strict=True):
            there, here = remote.forward(theirs), local.forward(ours)
            assert np.array_equal(there.logits, here.logits)
            assert np.array_equal(there.row_index, here.row_index)
            assert (there.hidden is None) == (here.hidden is None)
            if here.hidden is not None and there.hidden is not None:
                assert np.array_equal(there.hidden, here.hidden)
            for sequence in range(N_SEQUENCES):
                assert np.array_equal(remote.cache.cells(sequence), local.cache.cells(sequence))
        remote.cache.check_integrity()


def test_errors_arrive_by_type_and_change_nothing(remote: RemoteRuntime) -> None:
    before = remote.forward(Rows.chain(0, [1, 2, 3], 0)).logits.copy()
    remote.cache.drop_pending()
    with pytest.raises(EngineError, match="goes on at 0"):
        remote.forward(Rows.chain(0, [1], 5))
    n_free = remote.cache.n_free
    held = np.zeros(n_free - 2, np.int32)
    remote.cache.reserve(Rows.chain(1, held, 0))
    remote.cache.commit(1, range(len(held)))
    with pytest.raises(OutOfCellsError) as caught:
        remote.forward(Rows.chain(0, [1, 2, 3], 0))
    assert caught.value.n_free == 2
    remote.cache.release(1)
    assert np.array_equal(remote.forward(Rows.chain(0, [1, 2, 3], 0)).logits, before)
    assert not remote.lost()


def test_a_model_that_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "draft.gguf")
    whole = path.read_bytes()
    config = config_of(path)
    remote = RemoteRuntime.load(config, layout())
    remote.close()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError):
        RemoteRuntime.load(config, layout())


@pytest.mark.parametrize("how", ["while idle", "while asked"])
def test_a_process_that_dies_is_replaced_and_its_cache_is_empty(
    remote: RemoteRuntime, losses: list[str], how: str
) -> None:
    before = remote.forward(Rows.chain(0, [1, 2, 3], 0)).logits.copy()
    remote.cache.commit(0, range(3))
    pid = send_signal(remote, signal.SIGKILL)
    if how == "while idle":
        assert eventually(lambda: "SIGKILL" in remote.lost() or remote.pid not in (None, pid))
    with pytest.raises(DraftLostError):
        remote.forward(Rows.chain(0, [4], 3))
    started_s = time.monotonic()
    assert eventually(lambda: remote.pid not in (None, pid) and not remote.lost())
    print(f"{how}: back after {time.monotonic() - started_s:.2f} s")
    with pytest.raises(DraftLostError):  # not before the caller knows that the cache is empty
        remote.forward(Rows.chain(0, [4], 3))
    remote.cache.release(0)
    remote.renew()
    assert remote.cache.length(0) == 0
    assert np.array_equal(remote.forward(Rows.chain(0, [1, 2, 3], 0)).logits, before)
    assert len(losses) == 2
    assert "SIGKILL" in losses[0]
    assert losses[1] == ""


def test_a_process_that_stands_still_is_replaced(
    remote: RemoteRuntime, losses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_process, "STALL_S", 1.0)
    remote.forward(Rows.chain(0, [1], 0))
    pid = send_signal(remote, signal.SIGSTOP)
    started_s = time.monotonic()
    with pytest.raises(DraftLostError, match="stood still"):
        remote.forward(Rows.chain(0, [1], 0))
    assert time.monotonic() - started_s < 4.0
    assert not Path(f"/proc/{pid}").exists()
    started_s = time.monotonic()
    with pytest.raises(DraftLostError, match="stood still"):
        remote.forward(Rows.chain(0, [1], 0))
    assert time.monotonic() - started_s < 0.5, "a lost model is not waited for"
    assert eventually(lambda: not remote.lost())
    assert losses[-1] == ""


def test_close_leaves_no_process_thread_or_descriptor(model: Path) -> None:
    import threading

    threads, n_open = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        remote = RemoteRuntime.load(config_of(model), layout())
        remote.forward(Rows.chain(0, [1], 0))
        pid = remote.pid
        remote.close()
        assert not Path(f"/proc/{pid}").exists()
        remote.close()
    assert set(threading.enumerate()) <= threads
    assert len(os.listdir("/proc/self/fd")) <= n_open
