"""An engine over fake runtimes, driven step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucebox.config import Overlap as Mode
from lucebox.config import Pooling
from lucebox.core import Origin
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import Drafter
from lucebox.drafters.model import ModelDrafter
from lucebox.engine.admission import Admission
from lucebox.engine.draft_thread import DraftThread
from lucebox.engine.drafting import Drafting
from lucebox.engine.messages import Embed, Failed, Finish, RequestEvent, StepEvent, Submit, TokenLogprobs
from lucebox.engine.overlap import Overlap
from lucebox.engine.overlap_policy import N_SPARE
from lucebox.engine.pool import DrafterPool
from lucebox.engine.step import RoundHandler, Stepper
from lucebox.engine.timeline import WorkHandler, WorkLog, ignore
from lucebox.sampling.params import SamplingParams
from lucebox.text.grammar import GrammarCompiler
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, LogitsOf
from tests.support.tiny_models import TinySpec, tiny_metadata

PLUGIN = "plugin"


@dataclass
class Answer:
    """Everything the engine said about one request."""

    events: list[RequestEvent] = field(default_factory=list)

    @property
    def steps(self) -> list[StepEvent]:
        return [event for event in self.events if isinstance(event, StepEvent)]

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.steps for token in event.tokens]

    @property
    def origins(self) -> list[Origin]:
        return [origin for event in self.steps for origin in event.origins]

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        return [entry for event in self.steps for entry in event.logprobs or ()]

    @property
    def finish(self) -> Finish:
        (finish,) = [event.finish for event in self.steps if event.finish]
        assert self.events[-1] == self.steps[-1], "something follows the last event"
        return finish

    @property
    def failure(self) -> Failed:
        failure = self.events[-1]
        assert isinstance(failure, Failed)
        return failure


class Harness:
    """`n_vocab` - 1 letters from "a" on, then the end token, as in tests.support.tiny_vocabulary.

    The engine knows `drafter`, if given, as PLUGIN, then `draft` as "model", then what `specs` name.
    """

    def __init__(
        self,
        n_vocab: int,
        target: LogitsOf,
        draft: LogitsOf | None = None,
        *,
        n_ctx: int = 64,
        n_parallel: int = 1,
        draft_n_ctx: int | None = None,
        draft_length: str = "fixed:n=4",
        acceptance: str = "auto",
        drafter: Drafter | None = None,
        specs: Sequence[str] = (),
        on_round: RoundHandler | None = None,
        remembers: bool = True,
        overlap: Mode = "off",
        runtimes: tuple[FakeRuntime, FakeRuntime] | None = None,
        on_work: WorkHandler = ignore,
        n_prefix_tokens: int | None = None,
    ) -> None:
        self.end = n_vocab - 1
        self.vocabulary = Vocabulary.from_metadata(tiny_metadata(TinySpec(n_vocab=n_vocab)))
        self.target = FakeRuntime(n_vocab, target, n_ctx=n_ctx, n_sequences=n_parallel)
        n_spare = 0 if overlap == "off" else N_SPARE * n_parallel
        context = drafter_context(n_vocab, n_ctx=n_ctx, n_sequences=n_parallel)
        drafters: dict[str, Drafter] = {} if drafter is None else {PLUGIN: drafter}
        if draft is not None:
            self.draft = FakeRuntime(
                n_vocab, draft, n_ctx=draft_n_ctx or n_ctx, n_sequences=n_parallel, n_spare=n_spare
            )
            if runtimes is not None:
                self.target, self.draft = runtimes
            context = drafter_context(n_vocab, self.draft, n_ctx=n_ctx, n_sequences=n_parallel)
            drafters["model"] = ModelDrafter(context)
        pool = DrafterPool.of(context, drafters)
        for spec in specs:
            pool.get(spec)
        pool.defaults += tuple(specs)
        self.pool = pool
        self.costs = CostTable()
        work = WorkLog(on_work)
        self.overlap: Overlap | None = None
        if overlap != "off":
            spares = range(n_parallel, n_parallel + n_spare)
            self.overlap = Overlap(DraftThread(), self.costs, spares, overlap, work.note)
        drafting = Drafting(pool, self.costs, remembers=remembers, overlap=self.overlap, on_work=work.note)
        options = {"on_round": on_round, "work": work, "n_prefix_tokens": n_prefix_tokens}
        self.stepper = Stepper(self.target, drafting, n_parallel, **options)  # type: ignore[arg-type]
        self.admission = Admission(
            self.vocabulary,
            n_vocab,
            n_ctx,
            acceptance_spec=acceptance,
            draft_length_spec=draft_length,
            pool=pool,
            grammars=_grammars(n_vocab),
        )
        self.answers: dict[str, Answer] = {}

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        *,
        seed: int = 1,
        generated: Sequence[int] = (),
        prediction: Sequence[int] = (),
        traced: bool = False,
    ) -> str:
        id = f"r{len(self.answers)}"
        submit = Submit(
            id=id,
            prompt=list(prompt),
            params=params or SamplingParams(temperature=0.0),
            seed=seed,
            generated=list(generated),
            prediction=list(prediction),
            traced=traced,
        )
        self.answers[id] = Answer()
        self.stepper.scheduler.add(self.admission.admit(submit))
        return id

    def embed(self, prompt: Sequence[int], pooling: Pooling = "mean") -> str:
        id = f"r{len(self.answers)}"
        self.answers[id] = Answer()
        embed = Embed(id=id, prompt=list(prompt), pooling=pooling)
        self.stepper.scheduler.add(self.admission.admit_text(embed))
        return id

    def step(self) -> None:
        for event in self.stepper.step():
            assert event.id is not None
            self.answers[event.id].events.append(event)
        self.stepper.check_integrity()

    def cancel(self, id: str) -> None:
        event = self.stepper.cancel(id)
        if event is not None:
            self.answers[id].events.append(event)
        self.stepper.check_integrity()

    def run(self) -> None:
        while not self.stepper.scheduler.is_idle:
            self.step()

    def ask(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        *,
        seed: int = 1,
        generated: Sequence[int] = (),
    ) -> Answer:
        """Submits one request and runs until nothing is left to do."""
        id = self.submit(prompt, params, seed=seed, generated=generated)
        self.run()
        return self.answers[id]


def _grammars(n_vocab: int) -> GrammarCompiler:
    return GrammarCompiler(lambda: Tokenizer.from_metadata(tiny_metadata(TinySpec(n_vocab=n_vocab))))
