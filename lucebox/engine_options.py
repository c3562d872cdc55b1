"""What the user may choose about the engine: EngineOptions."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from lucebox import flags
from lucebox.flags import Choice, Flag, Integer, IntegerOr, Switch, Text

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
KvType = Literal["f32", "f16", "q8_0", "q4_0"]
Pooling = Literal["mean", "last", "cls"]
CpuKernels = Literal["auto", "ggml"]
Overlap = Literal["auto", "on", "off"]
Pinning = Literal["auto", "on", "off"]

DEFAULT_DRAFT_MODEL = "qwen2.5-coder-0.5b"
DEFAULT_CTX_SIZE_LIMIT = 8192
DEFAULT_SERVER_PARALLEL = 4
NONE = "none"
AUTO = "auto"
KEEP = "keep"
ALL = "all"
OFF = "off"
MODEL_DRAFTER = "model"
SUFFIX_DRAFTER = "suffix"
PREDICTION_DRAFTER = "prediction"
MODEL_DRAFTERS = (MODEL_DRAFTER, "slem", "tli")  # of ours, those that need a draft model
FREE_DRAFTERS = ("ngram", "recycle", "suffix")  # `--draft-model` takes them, too
DRAFT_MODEL_FIELDS = ("draft_device", "draft_threads", "draft_quant", "draft_vocab")  # for nothing else
SELF_DRAFT = re.compile(r"(?:(?<=[,+])|^)self:([^,+]*)")  # in a drafter's spec, or all of a draft model


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose about the engine. Raises ConfigError for a value that is not allowed."""

    target_model: Annotated[
        str,
        Flag(
            "the model that decides every token: a path, a name or `hf:owner/repo/file.gguf`", Text(), "MODEL"
        ),
    ] = "qwen2.5-coder-1.5b"
    draft_model: Annotated[
        str | None,
        Flag(
            "the smaller model that guesses ahead; `self:q4_0`: the target itself, re-quantised; `suffix`, "
            "`ngram` or `recycle`: that drafter without a model; `none`: nobody guesses",
            Text(),
            "MODEL",
            unset=f"`{DEFAULT_DRAFT_MODEL}` with the default target, else no model",
        ),
    ] = None
    target_device: Annotated[
        str,
        Flag(
            "where the target runs: a name or number of `lucebox devices`; several as `CUDA0,CPU` share its "
            "layers in that order; `auto`: the fastest, as measured, that have room",
            Text(),
            "DEVICE[,DEVICE…]",
        ),
    ] = AUTO
    target_split: Annotated[
        str | None,
        Flag(
            "shares of the target's layers, one for each of several devices, as `3,1`",
            Text(),
            "N,N…",
            unset="by free memory",
        ),
    ] = None
    target_cpu_layers: Annotated[
        int | None,
        Flag(
            "the last N layers of the target are computed by the CPU",
            Integer(0, 4096),
            "N",
            unset="none unless the CPU is among its devices",
        ),
    ] = None
    cpu_moe: Annotated[
        bool, Flag("the experts of a mixture-of-experts target stay with the CPU", Switch())
    ] = False
    draft_device: Annotated[
        str,
        Flag(
            "where the draft model runs, likewise; `auto`: a device of its own that is at least half as fast "
            "as the target's, else the same",
            Text(),
            "DEVICE[,DEVICE…]",
        ),
    ] = AUTO
    workers: Annotated[
        str | None,
        Flag(
            "other machines whose devices are to be used: addresses of `lucebox worker`",
            Text(),
            "HOST:PORT[,…]",
            unset="none",
        ),
    ] = None
    draft_quant: Annotated[
        str,
        Flag(
            "type that the draft model's matrices get while loading: `q4_0`, `q8_0` or another of ggml's; "
            "`keep`: the file's; `auto`: `q4_0` on a CPU that is faster with it",
            Text(),
            "TYPE",
        ),
    ] = AUTO
    draft_vocab: Annotated[
        int | str,
        Flag(
            "the draft model guesses only the first N tokens of its vocabulary, or `all`; "
            "`auto`: 32768 where that spares it a third of its weights, else all",
            IntegerOr(1, 2**24, (AUTO, ALL)),
            "N",
        ),
    ] = AUTO
    threads: Annotated[
        int | None,
        Flag("CPU threads that compute the target", Integer(1, 1024), "N", unset="physical cores"),
    ] = None
    draft_threads: Annotated[
        int | None,
        Flag("CPU threads that compute the draft model", Integer(1, 1024), "N", unset="as `--threads`"),
    ] = None
    pin_threads: Annotated[
        Pinning,
        Flag(
            "keep the threads of each model on cores of their own: `auto` where a worker on this machine "
            "computes at the same time, and there are enough",
            Choice(("auto", "on", "off")),
        ),
    ] = "auto"
    overlap: Annotated[
        Overlap,
        Flag(
            "guess on while the target verifies, where the draft model has a device of its own; `auto`: "
            "only while that is measured to be faster",
            Choice(("auto", "on", "off")),
        ),
    ] = "auto"
    fit: Annotated[
        bool,
        Flag(
            "where the models do not fit into memory, take what does: a smaller context, KV type, or fewer "
            "layers on a device",
            Switch(),
        ),
    ] = False
    ctx_size: Annotated[
        int | None,
        Flag(
            "context of one sequence, in tokens",
            Integer(16, 2**24),
            "N",
            unset=f"the model's own, at most {DEFAULT_CTX_SIZE_LIMIT}",
        ),
    ] = None
    parallel: Annotated[
        int | None,
        Flag(
            "sequences decoded at the same time; more wait",
            Integer(1, 256),
            "N",
            unset=f"{DEFAULT_SERVER_PARALLEL} for a server, else 1",
        ),
    ] = None
    prefix_cache: Annotated[
        int | str,
        Flag(
            "tokens of earlier requests whose keys and values are kept for those that begin alike, or `off`; "
            "`auto`: the context of a sequence, or a quarter of that of all. Running requests come first",
            IntegerOr(1, 2**24, (AUTO, OFF)),
            "N",
        ),
    ] = AUTO
    kv_type: Annotated[KvType, Flag("number type of the KV cache", Choice(KV_TYPES))] = "f16"
    cpu_kernels: Annotated[
        CpuKernels,
        Flag(
            "kernels for matrices and attention on a CPU: `auto`: our own where they can serve (Q4_K and "
            "Q6_K on AVX-512 VNNI, attention on AVX-512), which check several tokens for little more than "
            "one; `ggml`: only ggml's",
            Choice(("auto", "ggml")),
        ),
    ] = "auto"
    drafter: Annotated[
        str,
        Flag(
            "who guesses: `model` (the draft model), `suffix` (what the text repeats), `ngram`, `recycle`, "
            "`tli` or `slem` (a draft model of another vocabulary), a plug-in or `none`; `suffix,model`: "
            "each goes on behind the one before it; `model+suffix,model`: the controller chooses; `auto`: "
            "`model+suffix+suffix,model`, or `suffix` without a draft model",
            Text(),
            "NAME[,NAME…][+…]",
        ),
    ] = AUTO
    acceptance: Annotated[
        str,
        Flag(
            "how guesses are judged: `auto` (`greedy` at temperature 0, `match` with a seed, else `block`), "
            "`token`, `gumbel`, trees by `specinfer`, `rrs`, `kseq`, `traversal`; not lossless: `typical`, "
            "`lenient`, `mentored`, `fuzzy`",
            Text(),
            "NAME[:OPTION=VALUE,…]",
        ),
    ] = AUTO
    draft_length: Annotated[
        str,
        Flag(
            "how far to guess: `fixed:n=4`, `threshold:n=8,p_min=0.6`, `svip`, `adaedl`, `goodput` or a "
            "plug-in; `auto`: only while that is measured to be faster",
            Text(),
            "NAME[:OPTION=VALUE,…]",
        ),
    ] = AUTO

    def __post_init__(self) -> None:
        flags.check(self)
