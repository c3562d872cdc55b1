"""Records the rounds of an engine while it answers prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lucebox.api import Engine
from lucebox.config import EngineConfig, EngineOptions
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.engine.messages import EngineInfo
from lucebox.engine.round import LawRows, Round
from lucebox.errors import TraceError
from lucebox.research.kept_law import KeptLaw, Truncation, keep
from lucebox.research.records import RecordedRequest, RecordedRound, TraceHeader
from lucebox.research.trace_file import TraceWriter
from lucebox.resolve import resolve_engine
from lucebox.sampling.params import SamplingParams


class Recorder:
    """Writes what it is called with, as lucebox.engine.step.RoundHandler, to `writer`."""

    def __init__(self, writer: TraceWriter, truncation: Truncation) -> None:
        self._writer = writer
        self._truncation = truncation
        self._known: set[str] = set()

    def __call__(self, r: Round, laws: LawRows, verdict: Verdict) -> None:
        submit = r.sequence.submit
        if submit.id not in self._known:
            self._known.add(submit.id)
            prompt = [*submit.prompt, *submit.generated]
            self._writer.write(RecordedRequest(id=submit.id, prompt=prompt, seed=submit.seed))
        self._writer.write(_recorded(r, laws, verdict, self._truncation))


def record(
    engine: EngineOptions | EngineConfig,
    prompts: Sequence[str | Sequence[int]],
    params: SamplingParams,
    path: str | Path,
    *,
    truncation: Truncation | None = None,
    on_answer: Callable[[int], None] = lambda n_done: None,
) -> None:
    """Answers `prompts` one after the other and writes the trace of it to `path`.

    Only a strategy that asks for laws of the draft (`token`, `block`, …) makes a trace that such strategies
    can judge again. `on_answer` hears how many prompts are done. Raises what the engine raises, TraceError
    and OSError.
    """
    truncation = truncation or Truncation()
    truncation.validate()
    if not Path(path).parent.is_dir():  # before minutes of work
        raise TraceError(path, "there is no such folder")
    config = resolve_engine(engine) if isinstance(engine, EngineOptions) else engine
    recorder: Recorder | None = None

    def on_round(r: Round, laws: LawRows, verdict: Verdict) -> None:
        assert recorder is not None, "a round before the first request"
        recorder(r, laws, verdict)

    with (
        Engine.from_config(config, on_round=on_round) as running,
        TraceWriter(path, _header(running.info, params, truncation)) as writer,
    ):
        recorder = Recorder(writer, truncation)
        for n_done, prompt in enumerate(prompts, 1):
            running.generate(prompt, params)
            on_answer(n_done)


def _header(info: EngineInfo, params: SamplingParams, truncation: Truncation) -> TraceHeader:
    speculative = params.speculative
    return TraceHeader(
        target=info.target.name,
        draft=None if info.draft is None else info.draft.name,
        n_vocab=info.target.n_vocab,
        acceptance=speculative.acceptance or info.acceptance,
        draft_length=speculative.draft_length or info.draft_length,
        drafters=info.drafters,
        params=params,
        truncation=truncation,
    )


def _recorded(r: Round, laws: LawRows, verdict: Verdict, truncation: Truncation) -> RecordedRound:
    p, q = _kept(r.draft, laws, truncation)
    strategy = r.sequence.acceptance
    return RecordedRound(
        request=r.sequence.submit.id,
        n_prefix=len(r.sequence.tokens),
        drafter=r.drafter,
        tokens=r.draft.tokens.astype(np.int32),
        parents=r.draft.parents.astype(np.int32),
        p=p,
        q=q,
        has_q=strategy.needs_q or strategy.draw_mode is DrawMode.ARGMAX,
        verdict=verdict,
        draft_ms=r.draft_ms,
        verify_ms=r.verify_ms,
        n_rows=r.n_rows,
        n_caught_up=r.n_caught_up,
    )


def _kept(draft: Draft, laws: LawRows, truncation: Truncation) -> tuple[list[KeptLaw], list[KeptLaw | None]]:
    p: list[KeptLaw] = []
    q: list[KeptLaw | None] = [None] * len(draft)
    for row in range(len(draft) + 1):
        children = np.flatnonzero(draft.parents == row).tolist()
        kept_p, kept_qs = keep(
            laws[row], [draft.q[i] for i in children], draft.tokens[children].tolist(), truncation
        )
        p.append(kept_p)
        for i, law in zip(children, kept_qs, strict=True):
            q[i] = law
    return p, q
