"""Decoding of toy models with drafters of the product, as the engine does it, and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucebox.acceptance import AcceptanceStrategy
from lucebox.core import Distribution, Draft, DrawMode, Float32Array
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest, Observation
from lucebox.drafters.drawing import GrowingDraft
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler
from tests.support.enumerate import Model, Outcomes, distribution, joint_law

SEQUENCE = 0


def draft_request(
    prefix: Sequence[int],
    n_max: int = 8,
    *,
    n_vocab: int = 64,
    sequence: int = SEQUENCE,
    seed: int = 1,
    draw_mode: DrawMode = DrawMode.ARGMAX,
    shape: tuple[int, ...] = (),
    prediction: Sequence[int] = (),
    stop_tokens: frozenset[int] = frozenset(),
    n_before: int = 0,
) -> DraftRequest:
    """What an engine would ask behind `prefix`, of a controller that never stops a draft."""
    committed = list(prefix)[: len(prefix) - n_before]
    return DraftRequest(
        sequence=sequence,
        prefix=list(prefix),
        n_max=n_max,
        draw_mode=draw_mode,
        sampler=Sampler(SamplingParams(), n_vocab, committed),
        random=RoundRandom(seed, len(committed)),
        keep_drafting=lambda law, depth: True,
        stop_tokens=stop_tokens,
        shape=shape,
        prediction=prediction,
        n_before=n_before,
    )


class ToyModelDrafter(Drafter):
    """Draws from a toy model."""

    def __init__(self, context: DrafterContext, model: Model) -> None:
        super().__init__(context)
        self._model = model

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def release(self, sequence: int) -> None:
        pass

    def _draft(self, request: DraftRequest) -> Draft:
        growing = GrowingDraft(request, request.n_max)
        while not growing.is_done:
            laws = [
                distribution(self._model((*request.prefix, *growing.path(row)))) for row in growing.frontier
            ]
            growing.grow(laws, [lambda law=law: law for law in laws])  # type: ignore[misc]
        return growing.draft()


class DraftedDecoder:
    """Continues `prompt` as an engine with one drafter would, request after request."""

    def __init__(
        self,
        strategy: AcceptanceStrategy,
        target: Model,
        drafter: Drafter,
        prompt: Sequence[int],
        *,
        n_max: int,
        shape: tuple[int, ...] = (),
        prediction: Sequence[int] = (),
    ) -> None:
        self.n_drafted = self.n_accepted = self.n_rounds = 0
        self._strategy, self._target, self._drafter = strategy, target, drafter
        self._prompt = tuple(prompt)
        self._n_max, self._shape, self._prediction = n_max, shape, prediction
        self._sampler = Sampler(SamplingParams(), len(target(())), prompt)
        self._rows: dict[tuple[int, ...], tuple[Distribution, Float32Array]] = {}

    def exact(self, n: int) -> Outcomes:
        """The law of the first `n` tokens of plain decoding."""
        return joint_law(lambda text: self._target((*self._prompt, *text)), n)

    def tokens(self, seed: int, n: int) -> tuple[int, ...]:
        """The first `n` tokens behind the prompt."""
        text = list(self._prompt)
        while len(text) < len(self._prompt) + n:
            self._round(seed, text)
        self._drafter.remember(text, len(self._prompt))
        self._drafter.release(SEQUENCE)
        return tuple(text[len(self._prompt) :][:n])

    def _round(self, seed: int, text: list[int]) -> None:
        """Drafts, verifies and appends."""
        n_prefix = len(text)
        random = RoundRandom(seed, n_prefix)
        (draft,) = self._drafter.propose([self._request(text, random)])
        paths: list[tuple[int, ...]] = [()]
        for parent, token in zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True):
            paths.append((*paths[parent], token))
        laws, logits = zip(*(self._row((*text, *path)) for path in paths), strict=True)
        verdict = self._strategy.verify(draft, laws, random)
        text += [*(int(draft.tokens[i]) for i in verdict.path), verdict.token]
        self._drafter.observe(Observation(SEQUENCE, text, n_prefix, draft, verdict, logits))
        self.n_drafted += len(draft)
        self.n_accepted += len(verdict.path)
        self.n_rounds += 1

    def _request(self, text: list[int], random: RoundRandom) -> DraftRequest:
        return DraftRequest(
            sequence=SEQUENCE,
            prefix=text,
            n_max=self._n_max,
            draw_mode=self._strategy.draw_mode,
            sampler=self._sampler,
            random=random,
            keep_drafting=lambda law, depth: True,
            stop_tokens=frozenset(),
            shape=self._shape if self._strategy.supports_trees else (),
            prediction=self._prediction,
        )

    def _row(self, text: tuple[int, ...]) -> tuple[Distribution, Float32Array]:
        """The target's law behind `text`, and logits of which it is the softmax."""
        key = text[-2:]  # toy models look no further back
        if key not in self._rows:
            law = distribution(self._target(key))
            with np.errstate(divide="ignore"):
                self._rows[key] = law, np.log(law.dense())
        return self._rows[key]
