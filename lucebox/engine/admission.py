"""Checks a request against the models, and makes the sequence that will serve it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from lucebox import acceptance, draft_length
from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.config import AUTO, PREDICTION_DRAFTER
from lucebox.draft_length.base import DraftLengthController
from lucebox.engine.embedding import Pooler
from lucebox.engine.messages import Embed, Submit
from lucebox.engine.pool import DrafterPool
from lucebox.engine.prompt_scores import PromptScores
from lucebox.engine.sequence import EngineSequence
from lucebox.errors import (
    ConfigError,
    ContextLengthError,
    LuceboxError,
    RequestError,
    VocabularyMismatchError,
)
from lucebox.sampling.constraint import Constraint
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.sampler import Sampler
from lucebox.text.grammar import GrammarCompiler, GrammarMatcher
from lucebox.text.stop import StopMatcher
from lucebox.text.vocabulary import Vocabulary

MAX_CACHED_STRATEGIES = 64
MAX_CACHED_CONTROLLERS = 16


class Admission:
    """What every request is measured by: the target's vocabulary and context, the engine's own settings."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        n_vocab: int,
        n_ctx: int,
        *,
        acceptance_spec: str = AUTO,
        draft_length_spec: str,
        pool: DrafterPool | None = None,
        grammars: GrammarCompiler | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._n_vocab = n_vocab
        self._n_ctx = n_ctx
        self._acceptance_spec = acceptance_spec
        self._pool = pool
        self.grammars = grammars
        # One controller for all requests of a spec: what it learned of one serves the next.
        self._controllers = lru_cache(MAX_CACHED_CONTROLLERS)(draft_length.create)
        self._controller = self._controllers(draft_length_spec)
        # Strategies keep no state, and looking one up takes milliseconds.
        self._strategy = lru_cache(MAX_CACHED_STRATEGIES)(acceptance.create)
        if acceptance_spec != AUTO:
            self._strategy(acceptance_spec)  # a wrong name fails the start, not the first request

    def admit(self, submit: Submit, matcher: GrammarMatcher | None = None) -> EngineSequence:
        """A sequence that serves `submit`; `matcher` is its grammar's, where that is compiled already.

        Raises RequestError naming the field that is wrong; ContextLengthError for a prompt without room.
        """
        params = submit.params
        params.validate(self._n_vocab)
        self._check_tokens(submit)
        drafters = self._drafters(submit)
        sampler = Sampler(
            params,
            self._n_vocab,
            submit.prompt,
            submit.generated,
            self._constraint(params, matcher),
            seed=submit.seed,
            token_bytes=self._vocabulary.token_bytes,
        )
        if params.max_tokens != 0:
            sampler.check_start()
        return EngineSequence(
            submit=submit,
            sampler=sampler,
            acceptance=self._acceptance(params),
            controller=self._draft_length(submit, drafters),
            stops=StopMatcher(params.stop),
            end_tokens=self._vocabulary.eog_ids,
            token_bytes=self._vocabulary.token_bytes,
            n_ctx=self._n_ctx,
            drafters=drafters,
            scores=_scores(submit),
        )

    def admit_text(self, embed: Embed) -> EngineSequence:
        """A sequence that embeds a text, of at most as many tokens as the context has. Raises as `admit`."""
        params = SamplingParams(temperature=0.0)
        submit = Submit(id=embed.id, prompt=embed.prompt, params=params, seed=0, group=embed.group)
        self._check_tokens(submit, n_room=0)
        return EngineSequence(
            submit=submit,
            sampler=Sampler(submit.params, self._n_vocab, [], []),
            acceptance=self._acceptance(submit.params),
            controller=None,
            stops=StopMatcher(()),
            end_tokens=self._vocabulary.eog_ids,
            token_bytes=self._vocabulary.token_bytes,
            n_ctx=self._n_ctx,
            pooler=Pooler(embed),
        )

    def _check_tokens(self, submit: Submit, n_room: int = 1) -> None:
        """`n_room` tokens of the context must be left."""
        if not submit.prompt:
            raise RequestError("the prompt is empty", param="prompt", remedy="send at least one token")
        tokens = [*submit.prompt, *submit.generated]
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self._n_vocab:
                raise RequestError(
                    f"token id {token} is outside the vocabulary of {self._n_vocab}", param="prompt"
                )
        if len(tokens) + n_room > self._n_ctx:
            raise ContextLengthError(self._n_ctx, len(submit.prompt))
        if submit.prediction and not 0 <= min(submit.prediction) <= max(submit.prediction) < self._n_vocab:
            raise RequestError(
                f"prediction has token ids outside the vocabulary of {self._n_vocab}", param="prediction"
            )

    def _constraint(self, params: SamplingParams, matcher: GrammarMatcher | None) -> Constraint | None:
        if params.grammar is None:
            return None
        if self.grammars is None:
            raise RequestError("this engine takes no grammars", param="grammar")
        if matcher is None:
            matcher = self.grammars.compile(params.grammar)
        ends, usual = self._vocabulary.eog_ids, self._vocabulary.eos_id
        end_token = usual if usual in ends else min(ends)
        return Constraint(
            matcher, self._n_vocab, ends, end_token, banned=params.banned, ignores_end=params.ignore_eos
        )

    def _drafters(self, submit: Submit) -> tuple[str, ...]:
        """Who may guess, preferred first: whom the request names and nobody else, or who knows its prediction
        and the engine's own."""
        asked = submit.params.speculative.drafter
        if self._pool is None:
            return ()
        try:
            if asked is not None and asked != AUTO:
                self._pool.get_for_request(asked)
                return (asked,)
            if submit.prediction:
                self._pool.get(PREDICTION_DRAFTER)
                return (PREDICTION_DRAFTER, *self._pool.defaults)
        except (ConfigError, VocabularyMismatchError) as error:
            raise _of_request(error, "speculative.drafter") from error
        return self._pool.defaults

    def _acceptance(self, params: SamplingParams) -> AcceptanceStrategy:
        spec = params.speculative.acceptance or self._acceptance_spec
        if spec == AUTO:
            spec = acceptance.default(params)
        try:
            strategy = self._strategy(spec)
        except ConfigError as error:
            raise _of_request(error, "speculative.acceptance") from error
        if strategy.temperature_0_only and not params.greedy:
            raise RequestError(
                f"speculative.acceptance: {spec!r} keeps the model's law at temperature 0 only, and this "
                f"request's temperature is {params.temperature:g}",
                param="speculative.acceptance",
                remedy=f"set temperature to 0, or speculative.acceptance to {AUTO!r}",
            )
        return strategy

    def _draft_length(self, submit: Submit, drafters: Sequence[str]) -> DraftLengthController | None:
        params = submit.params
        if params.speculative.enabled is False:
            return None
        if params.speculative.enabled and not drafters:
            raise RequestError(
                "speculative.enabled: this engine has no drafter",
                param="speculative.enabled",
                remedy="leave it out, or start the engine with a draft model",
            )
        if params.speculative.draft_length is None:
            return self._controller
        try:
            return self._controllers(params.speculative.draft_length)
        except ConfigError as error:
            raise _of_request(error, "speculative.draft_length") from error


def _scores(submit: Submit) -> PromptScores | None:
    """An engine that died had sent them with its first token."""
    n = submit.params.prompt_logprobs
    return None if n is None or submit.generated else PromptScores(submit.prompt, n)


def _of_request(error: LuceboxError, param: str) -> RequestError:
    return RequestError(f"{param}: {error.message}", param=param, remedy=error.remedy)
