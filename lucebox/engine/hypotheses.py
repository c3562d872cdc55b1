"""What a round under way may come to, and the drafts that would follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from lucebox.core import Distribution, Draft
from lucebox.draft_length.confidence import Confidence, bucket_of
from lucebox.drafters.base import Ahead, Drafter, DraftRequest
from lucebox.drafters.drawing import without
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler

NO_SEQUENCE = -1
UNKNOWN_Q = 0.7  # of a token that was looked up
RATE_DISCOUNT = 0.98  # of what is known of a rate, per event
RATE_WEIGHT = 4.0  # events that what a rate begins with counts for


@dataclass(slots=True)
class Rate:
    """How often something happens, these days."""

    value: float
    _n: float = RATE_WEIGHT

    def add(self, happened: bool) -> None:
        self._n = RATE_DISCOUNT * self._n + 1.0
        self.value += (happened - self.value) / self._n


@dataclass(slots=True)
class Beliefs:
    """How likely outcomes are, learned from all rounds: that a token stands, by the draft model's confidence;
    that its guess behind a whole draft is right; and that its second guess is, where the first was not."""

    accepted: Confidence = field(default_factory=Confidence)
    bonus: Rate = field(default_factory=lambda: Rate(0.7))
    second: Rate = field(default_factory=lambda: Rate(0.4))


@dataclass(slots=True, eq=False)
class Hypothesis:
    """`n_accepted` tokens of the draft stand, and `token` follows, once that is known.

    `ahead` is what was drafted for this case, at most `n_max` tokens, in the cells of `sequence`.
    """

    n_accepted: int
    chance: float
    n_max: int
    token: int | None = None
    sequence: int = NO_SEQUENCE
    ahead: Ahead = field(default_factory=Ahead)
    is_over: bool = False
    sampler: Sampler | None = None

    @property
    def is_open(self) -> bool:
        return not self.is_over and len(self.ahead.tokens) < self.n_max


class Outcomes:
    """The hypotheses of one round, for another thread to draft for: copies of all that may change meanwhile.

    The draft model goes on in the sequence's own cells behind the whole draft, and in spare ones behind a
    rejection. Outcomes that end the request or leave no room for a draft are none.
    """

    def __init__(self, r: Round, drafter: Drafter, beliefs: Beliefs) -> None:
        sequence = r.sequence
        self.sequence: EngineSequence = sequence
        self.slot = sequence.slot
        self.drafter = drafter
        self._draft = r.draft
        self._laws: Mapping[int, Distribution] = dict(r.laws)
        self._tokens = list(sequence.tokens)
        self._drafted: list[int] = r.draft.tokens.tolist()
        self._random = sequence.random()
        self._sampler = sequence.sampler.ahead(())
        self._stop_tokens = sequence.draft_stop_tokens
        self._buckets = [bucket_of(self._confidence(i)) for i in range(len(r.draft))]
        self.hypotheses = list(self._likely(r.n_planned, sequence.n_left, beliefs))

    @property
    def n_drafted(self) -> int:
        return len(self._drafted)

    def begin(self, h: Hypothesis, sequence: int) -> None:
        """`h` is drafted for in the cells of `sequence` from here on. It may turn out to be over."""
        h.sequence = sequence
        if h.n_accepted == len(self._drafted):
            return  # the draft model has to be asked first
        rest = without(self._laws[h.n_accepted], self._drafted[h.n_accepted])
        if rest is None:
            h.is_over = True
            return
        self._expect(h, rest)
        if not h.is_over:
            self.drafter.fork(self.slot, sequence)

    def request(self, h: Hypothesis) -> DraftRequest:
        """What to ask the drafter for: one token more, or the law behind the whole draft."""
        if h.token is None:
            behind, n_max, keep_drafting = self._drafted, 1, partial(self._learn_token, h)
        else:
            behind = [*self._drafted[: h.n_accepted], h.token]
            n_max, keep_drafting = len(h.ahead.tokens) + 1, partial(_note_law, h)
        if h.sampler is None:
            h.sampler = self._sampler.ahead(behind)
        sequence = self.sequence
        prefix = [*self._tokens, *behind]
        return DraftRequest(
            sequence=h.sequence,
            prefix=prefix,
            n_max=n_max,
            draw_mode=sequence.acceptance.draw_mode,
            sampler=h.sampler,
            random=RoundRandom(self._random.seed, len(prefix)),
            keep_drafting=keep_drafting,
            stop_tokens=self._stop_tokens,
            needs_q=sequence.acceptance.needs_q,
            prediction=sequence.submit.prediction,
            ahead=h.ahead,
        )

    def take(self, h: Hypothesis, request: DraftRequest, draft: Draft) -> None:
        """The drafter's answer to `request`."""
        n = len(h.ahead.tokens)
        if len(draft) > n:
            h.ahead.tokens.append(int(draft.tokens[n]))
            h.ahead.q.append(draft.q[n])
            h.is_over = h.ahead.tokens[n] in self._stop_tokens
        elif h.token is None or len(request.prefix) > len(self._tokens) + h.n_accepted:
            h.is_over = True  # the draft model is full, or knows no token that may follow
        del h.ahead.laws[len(h.ahead.tokens) :]

    def drop_unused_laws(self) -> None:
        """Forgets laws behind which no token was drawn, as a draft that broke off leaves them."""
        for h in self.hypotheses:
            del h.ahead.laws[len(h.ahead.tokens) :]

    def settle(self, beliefs: Beliefs) -> Hypothesis | None:
        """The hypothesis that came true, now that the sequence has gone on. Teaches `beliefs`."""
        emitted, drafted = self.sequence.tokens[len(self._tokens) :], self._drafted
        n = 0
        while n < min(len(drafted), len(emitted)) and drafted[n] == emitted[n]:
            n += 1
        beliefs.accepted.add(self._buckets, n)
        if len(emitted) != n + 1:
            return None  # it ended there
        for h in self.hypotheses:
            if h.n_accepted == n and h.token is not None:
                (beliefs.bonus if n == len(drafted) else beliefs.second).add(h.token == emitted[n])
                if h.token == emitted[n]:
                    return h
        return None

    def _likely(self, n_next: int, n_left: int, beliefs: Beliefs) -> Iterator[Hypothesis]:
        """All that may be drafted for, where the next draft has `n_next` tokens and `n_left` may follow."""
        stands = 1.0
        for i, bucket in enumerate(self._buckets):
            accepted = beliefs.accepted.known[bucket]
            n_max = min(n_next, n_left - i - 2)
            if i in self._laws and n_max > 0:
                yield Hypothesis(i, stands * (1.0 - accepted) * beliefs.second.value, n_max)
            stands *= accepted
        n_max = min(n_next, n_left - len(self._drafted) - 2)
        if n_max > 0 and self._drafted[-1] not in self._stop_tokens:
            yield Hypothesis(len(self._drafted), stands * beliefs.bonus.value, n_max)

    def _confidence(self, i: int) -> float:
        law = self._laws.get(i)
        return UNKNOWN_Q if law is None else law.prob(self._drafted[i])

    def _learn_token(self, h: Hypothesis, law: Distribution, depth: int) -> bool:
        self._expect(h, law)
        return False

    def _expect(self, h: Hypothesis, law: Distribution) -> None:
        """The token that the request's own strategy would emit behind the accepted ones, if the target's law
        were `law`."""
        n = h.n_accepted
        draft = Draft.chain(self._drafted[: n + 1], self._draft.q[: n + 1])
        sure = [Distribution.one_hot(law.n_vocab, token) for token in self._drafted[:n]]
        verdict = self.sequence.acceptance.verify(draft, [*sure, law, law], self._random)
        h.token = verdict.token if len(verdict.path) == n else law.argmax()
        h.is_over = h.token in self._stop_tokens
        h.sampler = None  # what it was for did not have `token` behind it


def _note_law(h: Hypothesis, law: Distribution, depth: int) -> bool:
    if depth == len(h.ahead.laws):
        h.ahead.laws.append(law)
    return True
