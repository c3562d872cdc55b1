"""What request fields do to the text of a real server: float32 models, whose sums are the same in any batch
up to rounding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServerProcess
from tests.support.tiny_models import write_tiny

N_CTX = 1024
PROMPT = [(7 * i * i + 3 * i) % 200 for i in range(50)]  # token ids: bytes of the tiny vocabulary
CHAIN = {"typical_p": 0.95, "top_k": 60, "xtc_probability": 0.3, "xtc_threshold": 0.05, "dry_multiplier": 0.8}
SAMPLED = {"temperature": 0.9, "ignore_eos": True, "max_tokens": 40}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("models")
    target = write_tiny(folder / "tiny-target.gguf", "qwen2", n_ctx=N_CTX, seed=3, sharpness=3.0)
    draft = write_tiny(
        folder / "tiny-draft.gguf", "qwen2", n_ctx=N_CTX, seed=3, sharpness=3.0, perturbation=0.1
    )
    flags = ["--target-model", str(target), "--draft-model", str(draft), "--threads", "1"]
    flags += ["--draft-length", "fixed:n=3", "--kv-type", "f32", "--parallel", "4", "--ctx-size", str(N_CTX)]
    with ServerProcess(folder / "server.log", *flags) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def complete(http: httpx.Client, **fields: Any) -> Any:
    response = http.post("/v1/completions", json={"prompt": PROMPT, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def text_of(http: httpx.Client, **fields: Any) -> str:
    text = complete(http, **fields)["choices"][0]["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("chain", [{}, CHAIN], ids=["plain", "chain"])
def test_a_seed_gives_the_same_text_alone_and_in_company(http: httpx.Client, chain: dict[str, Any]) -> None:
    fields = {"seed": 7, **SAMPLED, **chain}
    alone = text_of(http, **fields)
    plain = complete(http, speculative=False, **fields)
    assert plain["choices"][0]["text"] == alone
    assert plain["timings"]["draft_n"] == 0
    for length in (1, 6):
        assert text_of(http, speculative={"draft_length": length}, **fields) == alone
    with ThreadPoolExecutor(4) as pool:
        others = [
            pool.submit(text_of, http, **SAMPLED, **other)
            for other in ({"seed": 8}, {"prompt": PROMPT[5:], "n": 1}, {"prompt": "else", **CHAIN})
        ]
        together = pool.submit(complete, http, **fields).result()
        texts = [other.result() for other in others]
    assert together["choices"][0]["text"] == alone
    assert together["timings"]["draft_n_accepted"] > 0
    assert alone not in texts


def test_choices_differ_and_repeat(http: httpx.Client) -> None:
    fields = {"seed": 20, **SAMPLED}
    choices = [choice["text"] for choice in complete(http, n=3, **fields)["choices"]]
    assert len(set(choices)) == 3
    assert choices == [text_of(http, **fields | {"seed": 20 + k}) for k in range(3)]


def test_best_of_is_the_best_of_them(http: httpx.Client) -> None:
    fields = {"seed": 20, **SAMPLED, "logprobs": 0}
    choices = complete(http, n=4, **fields)["choices"]
    means = {c["text"]: sum(c["logprobs"]["token_logprobs"]) / 40 for c in choices}
    best = [choice["text"] for choice in complete(http, n=2, best_of=4, **fields)["choices"]]
    assert best == sorted(means, key=lambda text: -means[text])[:2]


def test_streamed_log_probabilities_are_those_of_plain_decoding(http: httpx.Client) -> None:
    fields = {"logprobs": 4, "seed": 5, **SAMPLED, **CHAIN}
    (plain,) = complete(http, speculative=False, **fields)["choices"]
    parts: dict[str, list[Any]] = {}
    n_chunks = 0
    with http.stream("POST", "/v1/completions", json={"prompt": PROMPT, "stream": True, **fields}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                n_chunks += 1
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    for name, values in (choice["logprobs"] or {}).items():
                        parts.setdefault(name, []).extend(values)
    assert n_chunks > 5
    assert parts["tokens"] == plain["logprobs"]["tokens"]
    assert parts["text_offset"] == plain["logprobs"]["text_offset"]
    assert len(parts["tokens"]) == 40
    assert parts["token_logprobs"] == pytest.approx(plain["logprobs"]["token_logprobs"], abs=1e-3)
    for ours, theirs in zip(parts["top_logprobs"], plain["logprobs"]["top_logprobs"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


def test_a_scored_prompt_is_what_generating_it_would_have_been(http: httpx.Client) -> None:
    (scored,) = complete(http, echo=True, logprobs=2, max_tokens=0)["choices"]
    logprobs = scored["logprobs"]["token_logprobs"]
    assert len(logprobs) == len(PROMPT)
    assert logprobs[0] is None
    for i in (1, 2, 31, 32, 33, 49):  # a chunk of the prompt ends among them
        forced = {"max_tokens": 1, "logprobs": 0, "logit_bias": {str(PROMPT[i]): 100}}
        (one,) = complete(http, prompt=PROMPT[:i], **forced)["choices"]
        assert one["logprobs"]["token_logprobs"] == [pytest.approx(logprobs[i], abs=1e-3)]


def test_a_ban_holds_for_guesses_too(http: httpx.Client) -> None:
    fields = {"temperature": 0, "max_tokens": 40, "ignore_eos": True, "logprobs": 1}
    tokens = complete(http, **fields)["choices"][0]["logprobs"]["tokens"]
    letter = next(token for token in tokens if len(token) == 1)
    response = http.post("/tokenize", json={"content": letter})
    (id,) = response.json()["tokens"]
    answer = complete(http, logit_bias={str(id): -100}, **fields)
    assert letter not in answer["choices"][0]["logprobs"]["tokens"]
    assert answer["timings"]["draft_n_accepted"] > 0


def test_the_end_is_met_or_ignored(http: httpx.Client) -> None:
    """With the end token made certain, an answer is empty, or goes on."""
    (eos,) = http.post("/tokenize", json={"content": "<|endoftext|>", "parse_special": True}).json()["tokens"]
    ended = complete(http, logit_bias={str(eos): 100}, max_tokens=5)
    assert ended["choices"][0]["text"] == ""
    assert ended["choices"][0]["finish_reason"] == "stop"
    ignored = complete(http, logit_bias={str(eos): 100}, max_tokens=5, ignore_eos=True)
    assert ignored["choices"][0]["finish_reason"] == "length"
    assert ignored["usage"]["completion_tokens"] == 5


def test_a_model_that_cannot_fill_in_says_so(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", "suffix": "b"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "suffix"
