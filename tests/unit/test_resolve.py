"""Options become configs: paths, numbers and names, and contradictions are refused before anything loads."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from lucebox import drafters, hub
from lucebox.config import FREE_DRAFTERS, MODEL_DRAFTERS, EngineOptions, ServerOptions, engine_options
from lucebox.cores import can_pin, choose_cpus, open_cores, physical_cores
from lucebox.errors import ConfigError, ModelFileError
from lucebox.resolve import model_name, resolve, resolve_engine
from tests.support.tiny_models import write_tiny


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("models") / "tiny-target.gguf", n_ctx=512))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("models") / "tiny-draft.gguf", n_ctx=512))


def test_defaults_are_settled(target: str) -> None:
    config = resolve_engine(EngineOptions(target_model=target))
    assert config.target.path == target
    assert config.target.n_threads == physical_cores()
    assert config.target.device == "auto"
    assert config.n_ctx == 512
    assert (config.draft, config.drafters, config.acceptance) == (None, ("suffix",), "auto")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are Unicode")
def test_a_draft_device_that_is_left_open_needs_no_draft_model(target: str) -> None:
    assert resolve_engine(EngineOptions(target_model=target, draft_device="AUTO")).draft is None


def test_a_folder_that_is_no_unicode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    write_tiny(folder / "tiny.gguf")
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        resolve_engine(EngineOptions(target_model="tiny.gguf"))
    with pytest.raises(ConfigError, match="must be valid UTF-8"):
        ServerOptions(model_alias="\udcff")


def test_what_was_asked_for_arrives(target: str, draft: str) -> None:
    options = EngineOptions(
        target_model=target,
        draft_model=draft,
        target_device="CUDA0",
        draft_device="1",
        threads=3,
        ctx_size=100,
        parallel=4,
        kv_type="f32",
        acceptance="match",
        draft_length="fixed:n=2",
    )
    config = resolve_engine(options)
    assert config.draft is not None
    assert (config.target.device, config.draft.device, config.draft.path) == ("CUDA0", "1", draft)
    assert {(model.n_threads, model.kv_type) for model in (config.target, config.draft)} == {(3, "f32")}
    assert (config.n_ctx, config.n_parallel) == (100, 4)
    assert config.drafters == ("model", "suffix", "suffix,model")
    assert (config.acceptance, config.draft_length) == ("match", "fixed:n=2")


def test_settings_of_mixed_devices_arrive(target: str, draft: str) -> None:
    options = EngineOptions(
        target_model=target,
        draft_model=draft,
        target_device=" CUDA0 , cpu",
        target_split="3, 1",
        cpu_moe=True,
        draft_device="RPC0",
        draft_threads=1,
        workers="10.0.0.7:50052, pi.local:50060",
        overlap="on",
        fit=True,
    )
    config = resolve_engine(options)
    assert config.draft is not None
    assert (config.target.device, config.target.split) == ("CUDA0,cpu", (3.0, 1.0))
    assert (config.target.cpu_moe, config.draft.cpu_moe) == (True, False)
    assert (config.draft.device, config.draft.split, config.draft.n_threads) == ("RPC0", (), 1)
    assert config.workers == ("10.0.0.7:50052", "pi.local:50060")
    assert (config.overlap, config.fit) == ("on", True)
    layers = resolve_engine(EngineOptions(target_model=target, target_device="AUTO", target_cpu_layers=1))
    assert (layers.target.device, layers.target.n_cpu_layers) == ("auto", 1)


def test_mixed_devices_are_off_unless_asked_for(target: str, draft: str) -> None:
    config = resolve_engine(EngineOptions(target_model=target, draft_model=draft))
    assert (config.workers, config.overlap, config.fit) == ((), "auto", False)
    assert (config.target.split, config.target.n_cpu_layers, config.target.cpu_moe) == ((), None, False)
    assert config.draft is not None
    assert (config.target.cores, config.draft.cores) == ((), ())


@pytest.mark.skipif(not can_pin(), reason="Linux keeps threads on cores")
def test_threads_are_kept_on_cores(target: str, draft: str) -> None:
    config = resolve_engine(
        EngineOptions(target_model=target, draft_model=draft, threads=1, pin_threads="on")
    )
    assert config.draft is not None
    assert config.target.cores == config.draft.cores == choose_cpus(open_cores(), 1)


def test_paths_become_absolute(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(target).parent)
    assert resolve_engine(EngineOptions(target_model="tiny-target.gguf")).target.path == target


def test_a_large_context_is_limited_unless_asked_for(tmp_path: Path) -> None:
    path = str(write_tiny(tmp_path / "long.gguf", n_ctx=32768))
    assert resolve_engine(EngineOptions(target_model=path)).n_ctx == 8192
    assert resolve_engine(EngineOptions(target_model=path, ctx_size=32768)).n_ctx == 32768
    with pytest.raises(ConfigError, match=r"40000 tokens is more than the 32768 .* --ctx-size 32768 or less"):
        resolve_engine(EngineOptions(target_model=path, ctx_size=40000))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drafter": "model"}, "the drafter `model` needs a draft model"),
        ({"drafter": "none", "draft_model": "b.gguf"}, "would leave the draft model b.gguf unused"),
        ({"drafter": "modle"}, "did you mean model?"),
        ({"drafter": "suffix,model"}, "the drafter `model` needs a draft model"),
        ({"drafter": "suffix", "draft_model": "b.gguf"}, "would leave the draft model b.gguf unused"),
        ({"drafter": "suffix+ngram+suffix"}, "names one twice"),
        ({"drafter": "suffix,ngram,suffix"}, "has a drafter twice"),
        ({"drafter": "suffix,"}, "has no name"),
        ({"drafter": "ngram:n=3,m=2"}, "has no option 'm'"),
        ({"drafter": "ngram", "draft_model": "suffix"}, "contradicts --draft-model suffix"),
        ({"acceptance": "tokens"}, "did you mean token?"),
        ({"acceptance": "token:strength=2"}, "has no option 'strength'"),
        ({"draft_length": "threshold:m=2"}, "has no option 'm'"),
        ({"draft_length": "5"}, "'5'"),
        ({"draft_model": "self:q4"}, "'q4' is no type that weights can be re-quantised to"),
        ({"drafter": "self:q40"}, "did you mean q4_0"),
        ({"draft_model": "self:iq2_xs"}, "that takes an importance matrix"),
        ({"draft_model": "self:q4_0", "draft_quant": "q8_0"}, "contradicts the draft model self:q4_0"),
        ({"draft_model": "b.gguf", "draft_quant": "q5"}, "did you mean q5_k or q5_1 or q5_0?"),
        (
            {"drafter": "self:q8_0", "draft_model": "self:q4_0"},
            "would leave the draft model self:q4_0 unused",
        ),
        ({"draft_quant": "q4_0"}, "--draft-quant q4_0 is for a draft model"),
        ({"draft_vocab": 100}, "--draft-vocab 100 is for a draft model"),
        ({"draft_device": "CPU"}, "--draft-device CPU is for a draft model"),
        ({"draft_threads": 2}, "--draft-threads 2 is for a draft model"),
        ({"draft_threads": 2, "draft_model": "suffix"}, "--draft-threads 2 is for a draft model"),
        ({"draft_device": "CPU", "drafter": "none"}, "--draft-device CPU is for a draft model"),
        ({"draft_model": "self:q4_0", "draft_vocab": 100_000}, "more than the 272 tokens"),
        ({"target_device": "CPU,"}, "'CPU,' has no name between its commas"),
        ({"target_device": "auto,"}, "--target-device 'auto,' has no name"),
        ({"draft_device": "CUDA0,,CPU"}, "--draft-device 'CUDA0,,CPU' has no name"),
        ({"target_device": "CPU,cpu"}, "names CPU twice"),
        ({"target_device": "0, 1,0"}, "names 0 twice"),
        ({"target_device": "CUDA0,Auto"}, "mixes `auto` with others"),
        ({"target_split": "3,1"}, "2 shares for --target-device auto"),
        ({"target_split": "1"}, "1 shares for --target-device auto"),
        ({"target_split": "1", "target_device": "CPU,CUDA0"}, "1 shares for --target-device CPU,CUDA0"),
        ({"target_split": "3;1", "target_device": "CPU,CUDA0"}, "shares such as 3,1, not '3;1'"),
        ({"target_split": "3,-1", "target_device": "CPU,CUDA0"}, "shares such as 3,1"),
        ({"target_split": "0,0", "target_device": "CPU,CUDA0"}, "shares such as 3,1"),
        ({"target_split": "1,nan", "target_device": "CPU,CUDA0"}, "shares such as 3,1"),
        ({"target_split": "1,inf", "target_device": "CPU,CUDA0"}, "shares such as 3,1"),
        ({"workers": "a:1,a:1"}, "names one twice"),
        ({"workers": "a:0"}, "'a:0'"),
        ({"workers": "a:65536"}, "'a:65536'"),
        ({"workers": ":50052"}, "':50052'"),
        ({"draft_model": "no-such-model"}, "'no-such-model' is neither a file nor a model known by name"),
    ],
)
def test_contradictions_and_unknown_names_are_refused(
    target: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve_engine(EngineOptions(target_model=target, **options))


@pytest.mark.parametrize(
    ("named", "names"),
    [
        ({"draft_model": "self:q8_0"}, ("model", "suffix", "suffix,model")),
        ({"drafter": "self:q8_0"}, ("model",)),
        ({"drafter": "suffix+suffix,self:q8_0"}, ("suffix", "suffix,model")),
    ],
)
def test_the_target_may_draft_for_itself(target: str, named: dict[str, str], names: tuple[str, ...]) -> None:
    options = EngineOptions(target_model=target, draft_device="1", draft_vocab=99, **named)
    config = resolve_engine(options)
    assert config.draft is not None
    assert (config.draft.path, config.draft.device, config.draft.quantise) == (target, "1", "q8_0")
    assert (config.draft.n_head_rows, config.drafters) == (99, names)
    assert (config.target.quantise, config.target.n_head_rows) == ("keep", None)


@pytest.mark.parametrize("vocab", ["auto", "all"])
def test_a_small_vocabulary_is_guessed_whole(target: str, draft: str, vocab: str) -> None:
    options = EngineOptions(target_model=target, draft_model=draft, draft_quant="Q6_K", draft_vocab=vocab)
    config = resolve_engine(options)
    assert config.draft is not None
    assert (config.draft.quantise, config.draft.n_head_rows) == ("Q6_K", None)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"draft_model": "none"}, ()),
        ({"drafter": "none"}, ()),
        ({"draft_model": "none", "drafter": "ngram"}, ("ngram",)),
        ({"draft_model": "suffix"}, ("suffix",)),
        ({"draft_model": "ngram:n=3,n_min=2"}, ("ngram:n=3,n_min=2",)),
        ({"drafter": "recycle + ngram:n=3,n_min=2,recycle"}, ("recycle", "ngram:n=3,n_min=2,recycle")),
    ],
)
def test_drafters_without_a_draft_model(target: str, options: dict[str, str], names: tuple[str, ...]) -> None:
    config = resolve_engine(EngineOptions(target_model=target, **options))
    assert (config.draft, config.drafters) == (None, names)


def test_the_short_names_are_drafters_without_a_model() -> None:
    assert not any(drafters.get(name).needs_model for name in FREE_DRAFTERS)


def test_the_default_draft_model_is_for_drafters_that_need_one() -> None:
    assert {name for name in drafters.names() if drafters.get(name).needs_model} == set(MODEL_DRAFTERS)
    cases = {name: drafters.get(name).needs_model for name in drafters.names()}
    cases |= {
        "auto": True,
        "suffix+model:x=1": True,
        "a_plugin:n=3": False,
        "self:q4_0": False,
        "none": False,
    }
    for drafter, has_model in cases.items():
        options = engine_options(argparse.Namespace(), {"LUCEBOX_DRAFTER": drafter})
        assert (options.draft_model is not None) == has_model, drafter


def test_a_damaged_target_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "not.gguf"
    path.write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(ModelFileError, match=r"not\.gguf"):
        resolve_engine(EngineOptions(target_model=str(path)))


def test_the_alias_is_the_models_name_unless_given(target: str) -> None:
    options = EngineOptions(target_model=target)
    assert resolve(ServerOptions(engine=options)).model_alias == "tiny-target"
    assert resolve(ServerOptions(engine=options, model_alias="mine")).model_alias == "mine"
    assert model_name("qwen2.5-coder-1.5b") == "qwen2.5-coder-1.5b"
    assert model_name("hf:owner/repo/Some-7B.Q4_K_M.gguf") == "Some-7B.Q4_K_M"


def test_downloads_report_the_model_they_are_of(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(model: str, *, progress: object) -> Path:
        assert callable(progress)
        progress(1, 2)
        return Path(target)

    monkeypatch.setattr(hub, "resolve", fetch)
    seen: list[tuple[str, int, int]] = []
    options = EngineOptions(target_model="a", draft_model="b")
    resolve_engine(options, on_progress=lambda *report: seen.append(report))
    assert seen == [("a", 1, 2), ("b", 1, 2)]


def test_a_server_decodes_four_at_once_and_everything_else_one(target: str) -> None:
    engine = EngineOptions(target_model=target)
    assert resolve_engine(engine).n_parallel == 1
    assert resolve(ServerOptions(engine=engine)).engine.n_parallel == 4
    asked = EngineOptions(target_model=target, parallel=2)
    assert resolve_engine(asked).n_parallel == resolve(ServerOptions(engine=asked)).engine.n_parallel == 2


def test_settings_of_the_queue_and_the_prefix_cache_arrive(target: str, tmp_path: Path) -> None:
    file = tmp_path / "prefixes"
    options = ServerOptions(
        engine=EngineOptions(target_model=target, prefix_cache=4096),
        max_queue=7,
        request_timeout=30,
        prefix_cache_file=str(file),
    )
    engine = resolve(options).engine
    assert (engine.n_prefix_tokens, engine.max_queue, engine.timeout_s) == (4096, 7, 30)
    assert engine.prefix_file == str(file)
    plain = resolve(ServerOptions(engine=EngineOptions(target_model=target))).engine
    assert (plain.n_prefix_tokens, plain.timeout_s, plain.prefix_file) == (None, None, None)
    assert resolve_engine(EngineOptions(target_model=target, prefix_cache="off")).n_prefix_tokens == 0


@pytest.mark.parametrize(("name", "prefix_cache"), [("", "auto"), ("no/file", "auto"), ("file", "off")])
def test_a_prefix_cache_file_that_cannot_be_is_refused(
    target: str, tmp_path: Path, name: str, prefix_cache: str
) -> None:
    engine = EngineOptions(target_model=target, prefix_cache=prefix_cache)
    options = ServerOptions(engine=engine, prefix_cache_file=str(tmp_path / name))
    with pytest.raises(ConfigError, match="--prefix-cache-file"):
        resolve(options)


@pytest.mark.parametrize(
    ("kind", "asked", "pooling"),
    [
        (None, "auto", "mean"),
        (0, "auto", "mean"),
        (1, "auto", "mean"),
        (2, "auto", "cls"),
        (3, "auto", "last"),
        (4, "auto", "mean"),
        ("last", "auto", "mean"),
        (3, "mean", "mean"),
        (None, "cls", "cls"),
    ],
)
def test_pooling_is_the_files_unless_asked_for(
    tmp_path: Path, kind: int | str | None, asked: Literal["auto", "mean", "cls"], pooling: str
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", metadata={"llama.pooling_type": kind})
    options = ServerOptions(engine=EngineOptions(target_model=str(path)), pooling=asked)
    assert resolve(options).pooling == pooling
