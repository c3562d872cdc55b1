"""The whole engine on tiny float32 models: the same text with and without drafts, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucebox.api import Engine
from lucebox.core import Origin
from lucebox.engine.loader import load
from lucebox.errors import (
    ConfigError,
    ContextLengthError,
    EngineError,
    ModelFileError,
    RequestError,
    VocabularyMismatchError,
)
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.tiny_engines import LocalEngine, tiny_config
from tests.support.tiny_models import write_tiny

PROMPT = [10, 20, 30, 40]
GREEDY = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
DRAFT = {"perturbation": 0.1}


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("seed", [1, 2])
def test_greedy_text_is_the_same_with_and_without_drafts(tmp_path: Path, arch: str, seed: int) -> None:
    options = {"arch": arch, "seed": seed}
    with LocalEngine(tiny_config(tmp_path, **options)) as engine:
        plain = engine.ask(PROMPT, GREEDY)
    n_rejected = 0
    for draft_length in ("fixed:n=1", "fixed:n=4", "fixed:n=11", "threshold:n=8,p_min=0.5"):
        config = tiny_config(tmp_path, draft=DRAFT, draft_length=draft_length, **options)
        with LocalEngine(config) as engine:
            answer = engine.ask(PROMPT, GREEDY)
        assert answer.tokens == plain.tokens
        timings = answer.finish.timings
        assert 0 < timings.draft_n_accepted <= timings.draft_n
        n_rejected += timings.draft_n - timings.draft_n_accepted
    assert n_rejected > 0


def test_a_seed_says_the_same_alone_in_company_and_with_any_draft_length(tmp_path: Path) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=4, max_tokens=40, ignore_eos=True)
    with LocalEngine(tiny_config(tmp_path)) as engine:
        plain = engine.ask(PROMPT, params, seed=4)
    for n in (1, 3, 7):
        config = tiny_config(tmp_path, draft=DRAFT, n_parallel=4, draft_length=f"fixed:n={n}")
        with LocalEngine(config) as engine:
            answers = [engine.submit(PROMPT, params, seed=4) for _ in range(3)]
            for i in range(4):
                engine.submit([50 + i] * 40, GREEDY)
            engine.run()
        assert [answer.tokens for answer in answers] == [plain.tokens] * 3
        assert all(Origin.ACCEPTED in answer.origins for answer in answers)


def test_rows_of_the_embedding_without_a_token_can_be_drawn(tmp_path: Path) -> None:
    """Models pad their embeddings; nothing keeps them from drawing the padding."""
    rng = np.random.default_rng(0)
    n_rows = 2000
    tensors = {
        "token_embd.weight": rng.standard_normal((n_rows, 64)),
        "output.weight": rng.standard_normal((n_rows, 64)),
    }
    path = write_tiny(tmp_path / "padded.gguf", metadata={"llama.vocab_size": None}, tensors=tensors)
    params = SamplingParams(seed=1, max_tokens=20, ignore_eos=True, logprobs=2)
    with Engine(str(path), threads=1) as engine:
        answer = engine.generate([1, 2, 3], params)
        n_tokens = engine.tokenizer.vocabulary.n_tokens
    assert len(answer.tokens) == 20
    assert max(answer.tokens) >= n_tokens


def test_no_token_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows: dict[Runtime, int] = {}
    forward = Runtime.forward

    def counting(runtime: Runtime, rows: Rows) -> object:
        n_rows[runtime] = n_rows.get(runtime, 0) + len(rows)
        return forward(runtime, rows)

    monkeypatch.setattr(Runtime, "forward", counting)
    with LocalEngine(tiny_config(tmp_path, draft={"perturbation": 0.0}, draft_length="fixed:n=4")) as engine:
        n_rows.clear()  # costs were measured
        answer = engine.ask(PROMPT, GREEDY)
        target = n_rows.pop(engine.loaded.stepper.target)
        (draft,) = n_rows.values()
    timings = answer.finish.timings
    assert timings.draft_n_accepted == timings.draft_n  # an equal draft model is always right
    assert target == len(PROMPT) + len(answer.tokens) - 1
    assert draft <= target


def test_the_end_token_in_a_block_ends_the_text(tmp_path: Path) -> None:
    bias = {0: -100.0}
    params = SamplingParams(temperature=0.0, max_tokens=200, logit_bias=bias)
    with LocalEngine(tiny_config(tmp_path)) as engine:
        whole = engine.ask(
            PROMPT, SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True, logit_bias=bias)
        )
    # A model that ends: the token that stood at place 20 is named the end.
    place = next(i for i in range(20, 200) if whole.tokens[i] not in whole.tokens[:i])
    ending = {"metadata": {"tokenizer.ggml.eos_token_id": whole.tokens[place]}}
    with LocalEngine(
        tiny_config(tmp_path, draft={"perturbation": 0.05}, draft_length="fixed:n=8", **ending)
    ) as engine:
        answer = engine.ask(PROMPT, params)
    assert answer.tokens == whole.tokens[: place + 1]
    assert answer.finish.reason == "stop"
    assert answer.finish.timings.predicted_n == place + 1


def test_logprobs_are_the_targets_own(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, draft=DRAFT)
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, logprobs=2)
    with LocalEngine(config) as engine:
        answer = engine.ask(PROMPT, params)
    assert Origin.ACCEPTED in answer.origins
    with Runtime.load(config.target.path, device="CPU", n_threads=1, n_ctx=64, kv_type="f32") as runtime:
        rows = Rows.chain(0, [*PROMPT, *answer.tokens[:-1]], 0, want_all=Want.LOGITS)
        logits = runtime.forward(rows).logits[len(PROMPT) - 1 :].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row, entry in zip(expected, answer.logprobs, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-3)
        assert entry.top[0] == (entry.token, entry.logprob)


def test_a_draft_model_of_a_shorter_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalEngine(tiny_config(tmp_path)) as engine:
        plain = engine.ask(PROMPT, GREEDY)
    with LocalEngine(tiny_config(tmp_path, draft={"perturbation": 0.05, "n_ctx": 40})) as engine:
        answer = engine.ask(PROMPT, GREEDY)
    assert answer.tokens == plain.tokens
    assert set(answer.origins[-30:]) == {Origin.PLAIN}
    assert "40 tokens" in caplog.text


def test_vocabularies_that_differ_are_refused_with_the_ids(tmp_path: Path) -> None:
    with pytest.raises(VocabularyMismatchError, match=r"id \d+ is b.*--draft-model none"):
        load(tiny_config(tmp_path, draft={"n_vocab": 100}), lambda stage, fraction: None)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"n_ctx": 1024}, ConfigError, "512"),
        ({"acceptance": "tokn"}, ConfigError, "did you mean token"),
        ({"draft_length": "fixed:m=3"}, ConfigError, "no option 'm'"),
    ],
)
def test_a_wrong_configuration_fails_at_start(
    tmp_path: Path, change: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        load(tiny_config(tmp_path, **change), lambda stage, fraction: None)  # type: ignore[arg-type]


def test_a_damaged_model_fails_with_its_type(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    Path(config.target.path).write_bytes(b"GGUF but not really")
    with pytest.raises(ModelFileError, match=r"target\.gguf"):
        Engine.from_config(config)


def test_the_library_generates_chats_streams_and_counts(tmp_path: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=1)
    messages = [{"role": "user", "content": "hello"}]
    with Engine.from_config(tiny_config(tmp_path, draft=DRAFT)) as engine:
        whole = engine.generate("hello in the", params)
        chunks = list(engine.stream("hello in the", params))
        assert "".join(chunk.text for chunk in chunks) == whole.text
        assert [token for chunk in chunks for token in chunk.tokens] == whole.tokens
        assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert whole.finish_reason == "length"
        assert whole.text == engine.tokenizer.decode(whole.tokens)
        assert whole.logprobs is not None
        assert len(whole.logprobs) == len(whole.tokens) == len(whole.origins) == 12
        assert engine.generate(engine.tokenizer.encode("hello in the", parse_special=True), params) != whole
        chat = engine.chat(messages, params)
        assert chat.tokens == engine.generate(engine.encode_chat(messages), params).tokens
        assert "".join(chunk.text for chunk in engine.stream_chat(messages, params)) == chat.text
        assert engine.stats().timings.predicted_n == 12 * 6
        assert engine.info.draft is not None
    with pytest.raises(EngineError, match="closed"):
        engine.generate("hello", params)


def test_the_library_refuses_by_type(tmp_path: Path) -> None:
    with Engine.from_config(tiny_config(tmp_path)) as engine:
        with pytest.raises(RequestError, match="prompt is empty"):
            engine.generate("")
        with pytest.raises(ContextLengthError):
            engine.generate([1] * 256)
        with pytest.raises(RequestError, match="temperature"):
            engine.generate("a", SamplingParams(temperature=-1.0))
        bad = SpeculativeParams(acceptance="psychic")
        with pytest.raises(RequestError, match=r"speculative\.acceptance"):
            engine.generate("a", SamplingParams(speculative=bad))


def test_closing_a_stream_frees_the_engine(tmp_path: Path) -> None:
    endless = SamplingParams(temperature=0.0, ignore_eos=True)
    long = {"metadata": {"llama.context_length": 8192}}
    with Engine.from_config(tiny_config(tmp_path, draft=DRAFT, n_ctx=8192, **long)) as engine:
        stream = engine.stream("hello", endless)
        next(stream)
        assert stream.timings is None
        stream.close()
        answer = engine.generate("hello", GREEDY)
        assert answer.finish_reason == "length"
        stats = engine.stats()
        assert stats.n_cancelled == 1
        assert stats.timings.predicted_n < 8000
        assert stream.timings is not None
        assert 0 < stream.timings.predicted_n < 8000
        assert stats.timings == stream.timings + answer.timings


def test_an_interrupt_behind_a_submission_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = SamplingParams(temperature=0.0, ignore_eos=True)
    with Engine.from_config(tiny_config(tmp_path, draft=DRAFT, n_ctx=256)) as engine:
        submit = engine._client.submit

        def interrupted(*arguments: Any) -> None:
            submit(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine._client, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(engine.stream("hello", endless))
        engine.generate("hello", GREEDY)
        assert engine.stats().n_cancelled == 1


def test_two_engines_in_one_process(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    configs = tiny_config(first, draft=DRAFT, seed=1), tiny_config(second, arch="qwen2", seed=2)
    expected = []
    for config in configs:
        with LocalEngine(config) as engine:
            expected.append(engine.ask(PROMPT, GREEDY).tokens)
    with Engine.from_config(configs[0]) as one, Engine.from_config(configs[1]) as two:
        streams = one.stream(PROMPT, GREEDY), two.stream(PROMPT, GREEDY)
        for chunks in zip(*streams, strict=False):
            assert all(chunk.tokens for chunk in chunks)
        assert one.generate(PROMPT, GREEDY).tokens == expected[0]
        assert two.generate(PROMPT, GREEDY).tokens == expected[1]
