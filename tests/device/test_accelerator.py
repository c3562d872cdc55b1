"""An accelerator beside the CPU, in this process: the text that is known, whoever computes which part."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucebox import Completion, Engine, SamplingParams, SpeculativeParams
from tests.device.successor_models import SMALL, text_from, write_successor_model
from tests.support.mixed_devices import EngineProcess
from tests.support.tiny_models import write_tiny

N_TOKENS = 64
# Placements with {} for the accelerator: target, its split, draft.
PLACEMENTS = {
    "both on it": ("{}", None, "{}"),
    "draft on the CPU": ("{}", None, "CPU"),
    "target on the CPU": ("CPU", None, "{}"),
    "target on it and the CPU": ("{},CPU", "3,1", "{}"),
    "target on the CPU and it": ("CPU,{}", "1,3", "CPU"),
}
# Half-precision attention and the number types of each device's kernels, in nats.
MAX_LOGPROB_ERROR = 0.05
N_MUST_AGREE = 10
MAX_GROWTH_BYTES = 4 << 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("successor")
    target = write_successor_model(folder / "target.gguf", SMALL)
    draft = write_successor_model(folder / "draft.gguf", SMALL, agreement=0.7)
    return {"target_model": str(target), "draft_model": str(draft)}


def options_of(placement: str, accelerator: str) -> dict[str, str]:
    target, split, draft = PLACEMENTS[placement]
    if split is not None:
        skip_on_cpu(accelerator)
    options = {"target_device": target.format(accelerator), "draft_device": draft.format(accelerator)}
    return options if split is None else {**options, "target_split": split}


def skip_on_cpu(accelerator: str) -> None:
    """A rehearsal on the CPU has no second device."""
    if accelerator == "CPU":
        pytest.skip("the CPU is no device beside itself")


def params(**speculative: object) -> SamplingParams:
    return SamplingParams(
        temperature=0.0,
        max_tokens=N_TOKENS,
        ignore_eos=True,
        logprobs=2,
        speculative=SpeculativeParams(**speculative),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_text_is_the_known_one(
    models: dict[str, str], accelerator: str, placement: str, kv_type: str
) -> None:
    options = {**options_of(placement, accelerator), "ctx_size": 512, "threads": 2, "draft_vocab": "all"}
    with Engine(**models, **options, drafter="model", kv_type=kv_type) as engine:  # type: ignore[arg-type]
        for n_prompt in (1, 100):
            prompt = [*range(n_prompt)]
            known = text_from(prompt[-1], N_TOKENS, SMALL.n_vocab)
            assert engine.generate(prompt, params(enabled=False)).tokens == known
            drafted = engine.generate(prompt, params(draft_length="fixed:n=4"))
            assert drafted.tokens == known
            assert 0.2 < drafted.timings.acceptance_rate < 0.95


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_overlap_changes_nothing(models: dict[str, str], accelerator: str, overlap: str) -> None:
    skip_on_cpu(accelerator)
    known = text_from(7, N_TOKENS, SMALL.n_vocab)
    with Engine(
        **models,  # type: ignore[arg-type]
        target_device=accelerator,
        draft_device="CPU",
        threads=2,
        ctx_size=512,
        draft_vocab="all",
        drafter="model",
        overlap=overlap,
    ) as engine:
        answer = engine.generate([7], params(draft_length="fixed:n=4"))
    assert answer.tokens == known
    assert (answer.timings.n_overlapped > 0) == (overlap == "on")


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_probabilities_are_those_of_the_cpu(tmp_path: Path, accelerator: str, arch: str) -> None:
    skip_on_cpu(accelerator)
    path = write_tiny(tmp_path / "model.gguf", arch, n_layer=3, seed=2)
    answers = []
    for device in ("CPU", accelerator, f"{accelerator},CPU"):
        with Engine(str(path), target_device=device, threads=2, kv_type="f32", ctx_size=256) as engine:
            answers.append(engine.generate([10, 20, 30], params(enabled=False)))
    for answer in answers[1:]:
        assert_near(answer, answers[0])


def assert_near(answer: Completion, expected: Completion) -> None:
    """The same probabilities as far as the texts are the same; they may part where two tokens nearly tie."""
    assert answer.logprobs is not None
    assert expected.logprobs is not None
    n_same = 0
    for mine, its in zip(answer.logprobs, expected.logprobs, strict=True):
        if mine.token != its.token:
            assert its.top[0][1] - its.top[1][1] < 2 * MAX_LOGPROB_ERROR
            break
        assert mine.logprob == pytest.approx(its.logprob, abs=MAX_LOGPROB_ERROR)
        n_same += 1
    assert n_same >= N_MUST_AGREE


@pytest.mark.slow
def test_loading_and_unloading_leaks_nothing(
    tmp_path: Path, models: dict[str, str], accelerator: str
) -> None:
    options = {**options_of("target on it and the CPU", accelerator), "draft_length": "fixed:n=2"}
    with EngineProcess(tmp_path / "engine.log", {"MALLOC_ARENA_MAX": "1"}) as process:
        used = process.cycle(50, [7], **models, **options, drafter="model", threads=2, ctx_size=512)
    for name in used[0]:
        early = min(each[name] for each in used[25:30])
        assert min(each[name] for each in used[-5:]) - early < MAX_GROWTH_BYTES, name
