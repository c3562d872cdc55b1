"""The runtime on tiny models: however rows are batched, branched, shared or taken back, the logits agree."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.errors import ConfigError, EngineError, OutOfCellsError, OutOfMemoryError
from lucebox.gguf.reader import read
from lucebox.runtime.graphs import ROW_BUCKETS
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.tiny_models import write_tiny

N_VOCAB = 272
TOLERANCE = 2e-5
Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("runtime") / "tiny.gguf", "qwen2")


@pytest.fixture(scope="module")
def shared(path: Path) -> Iterator[Runtime]:
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=256, n_sequences=4, kv_type="f32") as runtime:
        yield runtime


@pytest.fixture
def runtime(shared: Runtime) -> Iterator[Runtime]:
    yield shared
    for sequence in range(shared.cache.n_sequences):
        shared.cache.release(sequence)
    shared.cache.drop_pending()
    shared.cache.check_integrity()
    assert shared.cache.n_free == shared.cache.n_cells


@pytest.fixture
def alone(runtime: Runtime) -> Callable[[list[int]], Logits]:
    """Logits of every token of a text when it is all there is: the reference for everything else."""

    def compute(tokens: list[int]) -> Logits:
        runtime.cache.drop_pending()
        logits = runtime.forward(Rows.chain(3, tokens, 0, want_all=Want.LOGITS)).logits.copy()
        runtime.cache.release(3)
        return logits

    return compute


def _tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).tolist()


def _append(runtime: Runtime, sequence: int, tokens: list[int]) -> Logits:
    rows = Rows.chain(sequence, tokens, runtime.cache.length(sequence), want_all=Want.LOGITS)
    logits = runtime.forward(rows).logits.copy()
    runtime.cache.commit(sequence, range(len(tokens)))
    return logits


def _close(a: Logits, b: Logits) -> bool:
    return a.shape == b.shape and float(np.abs(a - b).max()) <= TOLERANCE


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_of_rows_equals_each_of_its_paths_alone(
    runtime: Runtime, alone: Callable[[list[int]], Logits], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    prompt, n = _tokens(20, seed), 11
    tokens = _tokens(n, 100 + seed)
    parents = [-1] + [int(rng.integers(-1, i)) for i in range(1, n)]
    _append(runtime, 0, prompt)
    logits = runtime.forward(Rows.tree(0, tokens, parents, len(prompt))).logits.copy()
    for row in range(n):
        path, node = [], row
        while node >= 0:
            path.append(node)
            node = parents[node]
        assert _close(logits[row], alone(prompt + [tokens[i] for i in path[::-1]])[-1])


def test_an_accepted_path_of_a_tree_is_the_sequence(
    runtime: Runtime, alone: Callable[[list[int]], Logits]
) -> None:
    prompt, tokens = _tokens(10), _tokens(6, 1)
    _append(runtime, 0, prompt)
    runtime.forward(Rows.tree(0, tokens, [-1, 0, 0, 2, 1, 3], 10))
    runtime.cache.commit(0, [0, 2, 3, 5])
    after = _append(runtime, 0, [7, 8])
    expected = alone([*prompt, tokens[0], tokens[2], tokens[3], tokens[5], 7, 8])
    assert _close(after, expected[-2:])


def test_truncating_takes_tokens_back(runtime: Runtime, alone: Callable[[list[int]], Logits]) -> None:
    tokens = _tokens(40)
    _append(runtime, 0, tokens)
    runtime.cache.truncate(0, 25)
    assert runtime.cache.length(0) == 25
    assert _close(_append(runtime, 0, [1, 2, 3]), alone([*tokens[:25], 1, 2, 3])[-3:])


def test_forks_go_their_own_ways(runtime: Runtime, alone: Callable[[list[int]], Logits]) -> None:
    tokens = _tokens(30)
    _append(runtime, 0, tokens)
    runtime.cache.fork(0, 1)
    branches = [Rows.chain(0, [1, 2], 30, want_all=Want.LOGITS), Rows.chain(1, [5], 30)]
    logits = runtime.forward(Rows.concatenate(branches)).logits.copy()
    runtime.cache.commit(0, [0, 1])
    runtime.cache.commit(1, [2])
    assert runtime.cache.n_free == runtime.cache.n_cells - 33
    assert _close(logits[:2], alone([*tokens, 1, 2])[-2:])
    assert _close(logits[2:], alone([*tokens, 5])[-1:])
    runtime.cache.release(0)
    assert _close(_append(runtime, 1, [6]), alone([*tokens, 5, 6])[-1:])


def test_a_snapshot_brings_a_text_back(runtime: Runtime, alone: Callable[[list[int]], Logits]) -> None:
    tokens = _tokens(16)
    _append(runtime, 0, tokens)
    snapshot = runtime.cache.snapshot(0)
    runtime.cache.release(0)
    _append(runtime, 0, _tokens(50, 9))
    runtime.cache.restore(2, snapshot)
    runtime.cache.discard(snapshot)
    assert _close(_append(runtime, 2, [4]), alone([*tokens, 4])[-1:])


def test_sequences_in_one_batch_do_not_see_each_other(
    runtime: Runtime, alone: Callable[[list[int]], Logits]
) -> None:
    texts = [_tokens(n, n) for n in (17, 4, 31)]
    rows = [Rows.chain(i, text, 0, want_all=Want.LOGITS) for i, text in enumerate(texts)]
    logits = runtime.forward(Rows.concatenate(rows)).logits.copy()
    assert _close(logits, np.concatenate([alone(text) for text in texts]))


def test_a_released_runtime_is_as_good_as_new(runtime: Runtime) -> None:
    first = _append(runtime, 0, _tokens(100))
    runtime.cache.release(0)
    _append(runtime, 1, _tokens(200, 1))
    runtime.cache.release(1)
    assert np.array_equal(_append(runtime, 0, _tokens(100)), first)


@pytest.mark.parametrize("n", [7, 9, 13, 17, 33, 65, 100, 250])
def test_padding_rows_do_no_harm(runtime: Runtime, alone: Callable[[list[int]], Logits], n: int) -> None:
    """n is no bucket, so that padding is computed; what lay in the cache before must not notice."""
    assert n not in ROW_BUCKETS
    prompt = _tokens(20, 3)
    _append(runtime, 1, prompt)
    tokens = _tokens(n)
    padded = _append(runtime, 0, tokens)
    assert np.isfinite(padded).all()
    single = np.concatenate([_append(runtime, 2, [token]) for token in tokens[:9]])
    assert _close(padded[:9], single)
    assert _close(_append(runtime, 1, [5]), alone([*prompt, 5])[-1:])


def test_wants_choose_the_rows_of_logits(runtime: Runtime, alone: Callable[[list[int]], Logits]) -> None:
    tokens = _tokens(6)
    rows = Rows.chain(0, tokens, 0, want_last=Want.ARGMAX)
    rows.wants[2] = Want.LOGITS
    output = runtime.forward(rows)
    expected = alone(tokens)[[2, 5]]
    output = runtime.forward(rows)
    assert output.row_index.tolist() == [-1, -1, 0, -1, -1, 1]
    assert _close(output.logits, expected)
    assert output.argmax.tolist() == expected.argmax(axis=1).tolist()
    assert output.hidden is None


def test_nothing_wanted_gives_nothing_but_fills_the_cache(
    runtime: Runtime, alone: Callable[[list[int]], Logits]
) -> None:
    tokens = _tokens(40)
    output = runtime.forward(Rows.chain(0, tokens, 0, want_last=Want.NOTHING))
    assert output.logits.shape == (0, N_VOCAB)
    assert set(output.row_index.tolist()) == {-1}
    runtime.cache.commit(0, range(40))
    assert _close(_append(runtime, 0, [3]), alone([*tokens, 3])[-1:])


def test_hidden_states_are_what_the_head_multiplies(runtime: Runtime) -> None:
    rows = Rows.chain(0, _tokens(5), 0, want_all=Want.HIDDEN)
    rows.wants[1] = Want.NOTHING
    output = runtime.forward(rows)
    head = runtime.file.data("output.weight").view(np.float32).reshape(N_VOCAB, -1)
    assert output.hidden is not None
    assert output.hidden.shape == (4, runtime.hparams.n_embd)
    np.testing.assert_allclose(output.hidden @ head.T, output.logits, atol=1e-4)


def test_graphs_are_built_once_per_shape(runtime: Runtime) -> None:
    _append(runtime, 0, _tokens(10))
    _append(runtime, 0, [1])
    built = runtime.graphs.n_built
    for token in range(100):
        _append(runtime, 0, [token])
    _append(runtime, 0, _tokens(10))
    assert runtime.graphs.n_built == built


def test_graphs_stay_bounded_and_the_arena_may_grow(tmp_path: Path) -> None:
    wide = write_tiny(tmp_path / "wide.gguf", n_vocab=5000)  # logits outgrow everything else
    with Runtime.load(wide, device="CPU", n_threads=1, n_ctx=1024, kv_type="f32", max_graphs=3) as runtime:
        tokens = _tokens(400)
        small = _append(runtime, 0, tokens[:3])
        before = runtime.graphs.arena_bytes
        large = _append(runtime, 0, tokens[3:])
        assert runtime.graphs.arena_bytes > before, "400 rows of logits were not foreseen"
        runtime.cache.release(0)
        assert np.array_equal(_append(runtime, 0, tokens[:3]), small)
        assert np.array_equal(_append(runtime, 0, tokens[3:]), large)
        for n in ROW_BUCKETS[:8]:
            runtime.forward(Rows.chain(0, tokens[:n], 400))
        assert len(runtime.graphs) <= 3


def test_rows_beyond_the_first_cells_see_the_same(path: Path) -> None:
    """The number of cells that a graph sees, and where in it a sequence lies, change nothing."""
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=700, n_sequences=2, kv_type="f32") as runtime:
        tokens = _tokens(20)
        low = _append(runtime, 0, tokens)
        runtime.cache.release(0)
        for start in (0, 500):
            _append(runtime, 1, _tokens(600, 1)[start : start + 500])
        assert runtime.cache.length(1) == 600
        assert _close(_append(runtime, 0, tokens), low)
        assert runtime.cache.n_kv(0) == 620
        assert np.isfinite(_append(runtime, 0, [1])).all()


def test_f16_keys_and_values_are_close_to_f32(path: Path) -> None:
    tokens = _tokens(90)
    logits = []
    for kv_type in ("f16", "f32"):
        with Runtime.load(path, device="CPU", n_threads=2, n_ctx=128, kv_type=kv_type) as runtime:
            logits.append(_append(runtime, 0, tokens))
    difference = np.abs(logits[0] - logits[1]).max()
    assert 0 < difference < 0.05


def test_what_contradicts_the_cache_never_reaches_ggml(runtime: Runtime) -> None:
    _append(runtime, 0, [1, 2, 3])
    chain = Rows.chain
    bad_parent = chain(0, [1, 2], 3)
    bad_parent.parents[0] = 1
    foreign_parent = Rows.concatenate([chain(0, [1], 3), chain(1, [1], 0)])
    foreign_parent.parents[1] = 0
    foreign_parent.positions[1] = 4
    for rows, message in (
        (chain(0, [], 3), "1 to 512 rows, not 0"),
        (chain(0, [0] * 513, 3), "1 to 512 rows, not 513"),
        (chain(0, [N_VOCAB], 3), "outside the vocabulary of 272"),
        (chain(0, [5, -1], 3), "outside the vocabulary"),
        (chain(4, [5], 0), "none of the 4"),
        (chain(-1, [5, 6], 0), "none of the 4"),
        (chain(0, [5], 2), "stands at 2, its sequence goes on at 3"),
        (chain(0, [5, 6], 4), "one behind its parent or the end"),
        (bad_parent, "earlier row"),
        (foreign_parent, "another sequence"),
    ):
        with pytest.raises(EngineError, match=message):
            runtime.forward(rows)
    runtime.cache.check_integrity()
    assert runtime.cache.length(0) == 3


def test_running_out_of_cells_is_an_error_that_changes_nothing(
    runtime: Runtime, alone: Callable[[list[int]], Logits]
) -> None:
    tokens = _tokens(20)
    _append(runtime, 0, tokens)
    for sequence, n in ((1, 500), (2, 500)):
        _append(runtime, sequence, _tokens(n, sequence))
    with pytest.raises(OutOfCellsError, match="4 of 1024 cells free, 5 are needed"):
        runtime.forward(Rows.chain(0, [1] * 5, 20))
    runtime.cache.release(1)
    runtime.cache.release(2)
    assert _close(_append(runtime, 0, [9]), alone([*tokens, 9])[-1:])


def test_a_failed_computation_leaves_no_pending_rows(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(graph: int) -> None:
        raise OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(runtime.backend, "compute", fail)
        with pytest.raises(OutOfMemoryError):
            runtime.forward(Rows.chain(0, [1], 0))
    assert runtime.cache.n_free == runtime.cache.n_cells


def test_memory_left_dirty_by_others_is_cleared(path: Path) -> None:
    """glibc fills what malloc returns with 0xFE, which is NaN in float16."""
    script = (
        "import sys, numpy as np\n"
        "from lucebox.runtime.rows import Rows, Want\n"
        "from lucebox.runtime.runtime import Runtime\n"
        "runtime = Runtime.load(sys.argv[1], device='CPU', n_threads=1, n_ctx=256)\n"
        "rows = Rows.chain(0, list(range(70)), 0, want_all=Want.LOGITS)\n"
        "assert np.isfinite(runtime.forward(rows).logits).all()\n"
    )
    environ = {**os.environ, "MALLOC_PERTURB_": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environ, timeout=60)


def test_plans_that_cannot_fit_are_refused_with_numbers(path: Path) -> None:
    with pytest.raises(
        OutOfMemoryError, match=r"CPU has [\d,]+ MiB free.*cells of keys and values [\d,]+ MiB"
    ):
        Runtime.load(path, device="CPU", n_threads=1, n_ctx=1 << 31)
    with pytest.raises(ConfigError, match=r"q3_0.*f32, f16, q8_0, q4_0"):
        Runtime.load(path, device="CPU", n_threads=1, n_ctx=64, kv_type="q3_0")


def test_closing_twice_and_a_file_of_the_callers(path: Path) -> None:
    with read(path) as file:
        runtime = Runtime.load(file, device="CPU", n_threads=1, n_ctx=64)
        _append(runtime, 0, [1, 2])
        runtime.close()
        runtime.close()
        assert file.tensor("output.weight").n_bytes, "a file that was passed in stays open"


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
@pytest.mark.parametrize("n_rows", [1, 3, 8])
def test_logits_do_not_depend_on_the_cells_of_others(tmp_path: Path, kv_type: str, n_rows: int) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "qwen2", n_ctx=512)
    ids = random.Random(1).choices(range(5, 60), k=48)
    found = []
    for is_alone in (True, False):
        with Runtime.load(
            path, device="CPU", n_threads=1, n_ctx=256, n_sequences=6, kv_type=kv_type
        ) as runtime:
            rng, cache, got = random.Random(2), runtime.cache, []
            for start in range(0, len(ids), n_rows):
                if not is_alone:  # others come, grow and go between any two steps
                    for other in range(1, 6):
                        if rng.random() < 0.4:
                            cache.release(other)
                        n = rng.randrange(1, 6)
                        runtime.forward(Rows.chain(other, [7] * n, cache.length(other)))
                        cache.commit(other, range(n))
                part = ids[start : start + n_rows]
                got.append(runtime.forward(Rows.chain(0, part, start, want_all=Want.LOGITS)).logits.copy())
                cache.commit(0, range(len(part)))
            assert is_alone == (cache.cells(0).tolist() == list(range(len(ids))))
        found.append(np.concatenate(got))
    assert np.array_equal(*found), "to the last bit"
