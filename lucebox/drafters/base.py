"""The contract of a drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from lucebox.core import Distribution, Draft, DrawMode, Float32Array, Verdict
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler

if TYPE_CHECKING:  # the server's process looks drafters up, and loads neither ggml nor tokenizers
    from lucebox.gguf.reader import GgufFile
    from lucebox.runtime.cache import Cache
    from lucebox.runtime.output import Output
    from lucebox.runtime.rows import Rows
    from lucebox.text.tokenizer import Tokenizer


class DraftModel(Protocol):
    """What drafters use of a lucebox.runtime.runtime.Runtime, or of lucebox.engine.remote_runtime's."""

    @property
    def file(self) -> GgufFile: ...

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int: ...

    @property
    def n_batch(self) -> int: ...

    @property
    def cache(self) -> Cache: ...

    def forward(self, rows: Rows) -> Output:
        """Raises DraftLostError where `lost` gives the reason, or was about to."""
        ...

    def lost(self) -> str:
        """Why it cannot compute at present, or "". From any thread."""
        ...

    def renew(self) -> None:
        """Called between drafts: where the model was lost and is back, its cache is empty from now on."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a drafter is made for: a target, and a draft model if there is one.

    `n_vocab` counts the target's ids, `n_sequences` bounds the sequences at one time, `n_ctx` their tokens.
    A drafter that `needs_model` owns `draft_model`, and closes it. Tokenizers take a tenth of a second to
    make, and are made when first asked for; they encode text from anywhere inside of a longer one. Without
    `shares_vocabulary`, ids of the draft model mean something else. `draft_cached` are the tokens, by
    sequence, whose keys and values the draft model's cache holds, whichever drafter put them there, and
    `draft_retired` the sequences among them that ended, longest ago first.
    """

    n_vocab: int
    n_ctx: int
    n_sequences: int
    end_tokens: frozenset[int]
    draft_model: DraftModel | None
    target_tokenizer: Callable[[], Tokenizer]
    draft_tokenizer: Callable[[], Tokenizer]
    shares_vocabulary: bool = True
    draft_cached: dict[int, list[int]] = field(default_factory=dict)
    draft_retired: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class Ahead:
    """The beginning of a draft that was made before it was asked for.

    `tokens` with the law `q` that each was drawn from, and the laws that `keep_drafting` is to be asked of,
    in order. `n_used` is set by the drafter: of so many laws it spared itself the forward.
    """

    tokens: list[int] = field(default_factory=list)
    q: list[Distribution | None] = field(default_factory=list)
    laws: list[Distribution] = field(default_factory=list)
    n_used: int = 0


@dataclass(slots=True)
class DraftRequest:
    """What one sequence asks of a drafter for one round.

    `prefix` holds every committed token, prompt included; it may be hypothetical, and grows after the call.
    `n_max` is the longest draft of use. `keep_drafting(q_row, depth)` asks the draft-length controller if
    it goes on behind `depth` tokens, and may lower `n_max`; unless it `judges_laws`, it looks at no law, and
    any will do.
    `stop_tokens` end a draft: nothing behind them could be kept.
    `shape` is that of lucebox.draft_length.base.Plan: () for a chain, which is always welcome. Without
    `needs_q`, laws of the draft are not looked at, and may be None. `prediction` is text that the caller
    expects in the answer, as tokens. The last `n_before` tokens of `prefix` are not committed: drafters in
    front guessed them in this round, so depths and random offsets go on behind them, and samplers see them
    as `extra`. `ahead` is the beginning of the very draft that is asked for, known already, for a drafter
    that `can_run_ahead` to go on from.
    """

    sequence: int
    prefix: Sequence[int]
    n_max: int
    draw_mode: DrawMode
    sampler: Sampler
    random: RoundRandom
    keep_drafting: Callable[[Distribution, int], bool]
    stop_tokens: frozenset[int]
    shape: tuple[int, ...] = ()
    needs_q: bool = True
    prediction: Sequence[int] = ()
    n_before: int = 0
    judges_laws: bool = True
    ahead: Ahead | None = None

    @property
    def before(self) -> Sequence[int]:
        """The tokens guessed in front of this request."""
        return self.prefix[len(self.prefix) - self.n_before :]

    def deterministic(self, tokens: Sequence[int]) -> Draft:
        """The chain of `tokens`, cut at n_max, behind the first stop token and before the first that the
        grammar forbids. Nothing was drawn."""
        n = min(len(tokens), self.n_max)
        n = next((i + 1 for i in range(n) if tokens[i] in self.stop_tokens), n)
        if self.sampler.constraint is not None:
            n = self.sampler.constraint.n_allowed(tokens[:n], self.before)
        return Draft.chain(tokens[:n], [None] * n)


@dataclass(frozen=True, slots=True)
class Observation:
    """A finished round, plain or drafted by whomever.

    `tokens` are the sequence's, what the round emitted included; the first `n_prefix` stood before it. In the
    last round they may end before all that `verdict` accepted.
    `verdict` judged `draft`, and `logits[r]` (float32[n_vocab], raw, valid during the call) are the target's
    behind row r of it.
    """

    sequence: int
    tokens: Sequence[int]
    n_prefix: int
    draft: Draft
    verdict: Verdict
    logits: Sequence[Float32Array]


class Drafter(ABC):
    """Guesses what comes next. Owns its own cache, and rolls it back by itself.

    A drafter is one file in `lucebox/drafters/` whose module name is its name, exporting its class as
    `Plugin`, which is made of a DrafterContext and its own keyword-only options. One that `needs_model` is
    made only where there is a draft model; any other costs next to nothing to have. An exception out of
    `propose` or `observe` ends speculation for the sequences concerned, and nothing else.
    """

    needs_model: ClassVar[bool] = False
    any_vocabulary: ClassVar[bool] = False  # of the draft model; others need that of the target
    can_run_ahead: ClassVar[bool] = False  # by prefix and `ahead` alone, in target ids, from another thread
    operator_options: ClassVar[frozenset[str]] = frozenset()  # that no request may choose: they take memory

    def __init__(self, context: DrafterContext) -> None:
        self.context = context

    def lost(self) -> str:
        """Why it cannot guess at present, or "". It is not asked to while there is a reason."""
        return ""

    @abstractmethod
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft per request, in order; an empty draft where there is nothing to guess."""

    def observe(self, observation: Observation) -> None:  # noqa: B027 (optional)
        """Learns from a round of a sequence that may use this drafter, whoever drafted it."""

    def remember(self, tokens: Sequence[int], n_prompt: int) -> None:  # noqa: B027 (optional)
        """Learns from a whole request that ended: `n_prompt` tokens of prompt, then the answer."""

    def forget(self) -> None:  # noqa: B027 (optional)
        """Drops all that was learned from requests: the next one is as the first."""

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        """Tokens to compute before the first guess behind `n_prefix` tokens, beyond the last of them."""
        return 0

    def fork(self, source: int, target: int) -> None:  # noqa: B027 (optional)
        """`target` starts with what is known of `source`."""

    def start(self, sequence: int, prefix: Sequence[int]) -> None:  # noqa: B027 (optional)
        """A request of these tokens begins as `sequence`."""

    def retire(self, sequence: int) -> None:
        """The request that was `sequence` ended well; what is kept of it is for those that begin alike."""
        self.release(sequence)

    @abstractmethod
    def release(self, sequence: int) -> None:
        """Forgets `sequence` and frees its cells."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Frees every device object."""
