"""The prefix cache in a file: what comes back, and what is refused."""

from __future__ import annotations

import hashlib
import random
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lucebox.config import EngineConfig
from lucebox.engine.prefix_cache import N_BLOCK
from lucebox.engine.prefix_cache_file import MAGIC
from lucebox.engine.thread_client import ThreadClient
from lucebox.sampling.params import SamplingParams
from tests.support.tiny_engines import TIMEOUT_S, Asked, LocalEngine, tiny_config

N_CTX = 256
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=3)
PROMPTS = [[*random.Random(0).choices(range(5, 60), k=70), *range(5, 5 + n)] for n in (9, 20, 31)]


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    config = tiny_config(tmp_path, n_ctx=N_CTX, n_parallel=2)
    return msgspec.structs.replace(config, prefix_file=str(tmp_path / "prefixes"))


def filled(config: EngineConfig) -> tuple[bytes, int]:
    """What the file has after some requests, and how many tokens that are."""
    assert config.prefix_file is not None
    with LocalEngine(config) as engine:
        for prompt in PROMPTS:
            engine.ask(prompt, GREEDY)
        engine.loaded.keep_prefixes()
        return Path(config.prefix_file).read_bytes(), engine.loaded.stepper.prefixes.n_cells


def n_restored(config: EngineConfig) -> int:
    with LocalEngine(config) as engine:
        engine.loaded.stepper.check_integrity()
        return engine.loaded.stepper.prefixes.n_cells


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_a_new_engine_goes_on_where_the_last_one_was(tmp_path: Path, kv_type: str) -> None:
    made = tiny_config(tmp_path, n_ctx=N_CTX, n_parallel=2, n_embd=128, n_head=4, n_head_kv=2)
    target = msgspec.structs.replace(made.target, kv_type=kv_type)
    config = msgspec.structs.replace(made, target=target, prefix_file=str(tmp_path / "prefixes"))
    _, n_kept = filled(config)
    with LocalEngine(config) as engine:
        assert engine.loaded.stepper.prefixes.n_cells == n_kept > 0
        with LocalEngine(msgspec.structs.replace(config, prefix_file=None)) as other:
            for prompt in PROMPTS:
                other.ask(prompt, GREEDY)
            for prompt in PROMPTS:
                restored, kept = engine.ask(prompt, GREEDY), other.ask(prompt, GREEDY)
                assert restored.finish.timings.cache_n == (len(prompt) - 1) // N_BLOCK * N_BLOCK
                assert restored.logprobs == kept.logprobs, "the very same keys and values"


def test_only_the_owner_may_read_it(config: EngineConfig) -> None:
    filled(config)
    assert config.prefix_file is not None
    assert stat.S_IMODE(Path(config.prefix_file).stat().st_mode) == 0o600
    assert not Path(config.prefix_file + ".tmp").exists()


def test_the_most_recently_used_come_back_where_fewer_may(config: EngineConfig) -> None:
    filled(config)
    with LocalEngine(msgspec.structs.replace(config, n_prefix_tokens=6 * N_BLOCK + 3)) as engine:
        assert engine.loaded.stepper.prefixes.n_cells == 6 * N_BLOCK
        answer = engine.ask(PROMPTS[-1], GREEDY)
        assert answer.finish.timings.cache_n == len(PROMPTS[-1]) // N_BLOCK * N_BLOCK
        engine.loaded.stepper.check_integrity()


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        i = min(int(at * len(data)), len(data) - 1)
        return data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "part of the beginning": lambda data: MAGIC[:5],
    "only the beginning": lambda data: MAGIC,
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"x",
    "a bit of the header": flipped(0.001),
    "a bit of a key": flipped(0.5),
    "a bit of the digest": flipped(1.0),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_no_prefix(
    config: EngineConfig, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = filled(config)
    assert config.prefix_file is not None
    Path(config.prefix_file).write_bytes(damage(data))
    assert n_restored(config) == 0
    assert "is not used, and will be replaced: it is damaged" in caplog.text
    assert filled(config)[0] == data


def test_a_file_of_another_kind_is_left_alone(config: EngineConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Such as a model, by mistake."""
    filled(config)
    assert config.prefix_file is not None
    path = Path(config.prefix_file)
    path.write_bytes(b"GGUF and more")
    assert filled(config)[1] > 0
    assert "is not used: that is a file of another kind, and left alone" in caplog.text
    assert path.read_bytes() == b"GGUF and more"
    assert "cannot be kept" in caplog.text
    path.write_bytes(b"")
    data, n_kept = filled(config)
    assert data.startswith(MAGIC)
    assert n_restored(config) == n_kept


def test_a_file_of_another_model_is_no_prefix(
    config: EngineConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(config)
    (tmp_path / "other").mkdir()
    others = (
        tiny_config(tmp_path / "other", n_ctx=N_CTX, n_parallel=2, seed=9),
        msgspec.structs.replace(config, n_ctx=N_CTX // 2),
        msgspec.structs.replace(config, target=msgspec.structs.replace(config.target, kv_type="f16")),
    )
    for other in others:
        caplog.clear()
        assert n_restored(msgspec.structs.replace(other, prefix_file=config.prefix_file)) == 0
        assert "is not used, and will be replaced: it is of another model" in caplog.text


def test_a_start_tells_what_it_begins_with(config: EngineConfig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _, n_kept = filled(config)
    assert f"will be kept in {config.prefix_file}, a new file" in caplog.text
    assert "begins with" not in caplog.text
    n_restored(config)
    assert f"begins with {n_kept} tokens of {config.prefix_file}" in caplog.text


@pytest.mark.parametrize("token", [-1, 2**31, 2**63])
def test_tokens_that_the_model_has_not_are_no_prefix(
    config: EngineConfig, token: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In a file that is sound otherwise, digest and all."""
    data, _ = filled(config)
    n_head = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    head, planes = data[len(MAGIC) + 8 :][:n_head], data[len(MAGIC) + 8 + n_head : -64]
    header = msgspec.msgpack.decode(head)
    header["tokens"][0][3] = token
    head = msgspec.msgpack.encode(header)
    forged = MAGIC + len(head).to_bytes(8, "little") + head + planes
    assert config.prefix_file is not None
    Path(config.prefix_file).write_bytes(forged + hashlib.blake2b(forged).digest())
    assert n_restored(config) == 0
    assert "tokens that the model" in caplog.text


def test_a_folder_that_is_gone_stops_nobody(config: EngineConfig, caplog: pytest.LogCaptureFixture) -> None:
    config = msgspec.structs.replace(config, prefix_file=str(Path(config.target.path).parent / "no" / "file"))
    with LocalEngine(config) as engine:
        engine.ask(PROMPTS[0], GREEDY)
        engine.loaded.keep_prefixes()
    assert "cannot be kept" in caplog.text


def test_it_is_written_when_the_engine_closes(config: EngineConfig) -> None:
    for n_cached in (0, len(PROMPTS[0]) // N_BLOCK * N_BLOCK):
        with ThreadClient(config) as client:
            client.wait_ready(TIMEOUT_S)
            answer = Asked(client, "a", PROMPTS[0], GREEDY).all()
            assert answer.finish.timings.cache_n == n_cached
