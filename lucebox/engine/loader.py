"""Builds an engine from its configuration: loads the models, compares their vocabularies, makes the parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from lucebox import drafters
from lucebox.config import EngineConfig, ModelConfig
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import DrafterContext
from lucebox.engine.admission import Admission
from lucebox.engine.calibration import calibrate
from lucebox.engine.cost_file import CostFile, machine_key, model_key
from lucebox.engine.draft_loading import DraftRuntime, divide_workers, load_draft
from lucebox.engine.draft_thread import DraftThread, ModelOnThread
from lucebox.engine.drafting import Drafting
from lucebox.engine.messages import EngineInfo, ModelInfo, Planned
from lucebox.engine.model_loading import load_model
from lucebox.engine.overlap import Overlap, check_overlap
from lucebox.engine.overlap_policy import N_SPARE
from lucebox.engine.planning import DRAFT, TARGET, device_uses, draft_context, settle
from lucebox.engine.pool import DrafterPool
from lucebox.engine.prefix_cache_file import PrefixCacheFile
from lucebox.engine.remote_runtime import LossHandler
from lucebox.engine.step import RoundHandler, Stepper
from lucebox.engine.timeline import WorkHandler, WorkLog, ignore
from lucebox.engine.vocabulary_check import check_draft
from lucebox.errors import ConfigError
from lucebox.ggml.library import load as load_library
from lucebox.gguf import read
from lucebox.gguf.context import check_context
from lucebox.paths import cache_dir
from lucebox.runtime.graphs import ROW_BUCKETS
from lucebox.runtime.layout import Layout
from lucebox.runtime.runtime import Runtime
from lucebox.text.grammar import GrammarCompiler
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary
from lucebox.worker.client import WorkerLink, connect
from lucebox.worker.watchdog import LostHandler

logger = logging.getLogger(__name__)

LoadProgress = Callable[[str, float], None]

CALIBRATION_STAGE = "measuring what rounds cost on the devices"
WORTH_KEEPING_S = 0.5  # of measuring: less is done again at every start


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """What an EngineLoop needs. The stepper owns all device memory, and `workers` those of its devices that
    are on other machines."""

    stepper: Stepper
    admission: Admission
    info: EngineInfo
    workers: tuple[WorkerLink, ...] = ()
    prefix_file: PrefixCacheFile | None = None

    def keep_prefixes(self) -> None:
        """Writes the prefix cache to its file, if it has one. No request may be running."""
        if self.prefix_file is not None:
            self.prefix_file.write(self.stepper.prefixes)

    def close(self) -> None:
        """Frees all device memory, and lets others have the workers. Idempotent."""
        self.stepper.close()
        for worker in self.workers:
            worker.close()


def load(
    config: EngineConfig,
    on_progress: LoadProgress,
    on_round: RoundHandler | None = None,
    on_worker_lost: LostHandler = lambda reason: None,
    on_plan: Callable[[Planned], None] = lambda planned: None,
    on_work: WorkHandler = ignore,
    on_loss: LossHandler = lambda reason: None,
) -> LoadedEngine:
    """Loads what `config` names; `on_progress(stage, fraction)` hears of models, `on_round` of each round,
    `on_work` of what each model computed, and `on_plan` of what they will take, before they are loaded.

    `on_worker_lost` is called in a thread of its own when a worker is gone or stands still, in which case
    nothing here may ever go on. A draft model on a worker of its own is no such case: `on_loss` hears why it
    was lost, and "" when it is back. Raises the LuceboxError that stops it, with nothing left on any device.
    """
    started_s = time.monotonic()
    with ExitStack() as undo:
        with read(config.target.path) as target_file:
            check_context(target_file, config.n_ctx)
            links = _connect(config, on_worker_lost, undo)
            # What does not fit is refused before the vocabularies are compared, which takes longer.
            fitted = settle(config, shares_vocabulary=True)
            vocabulary = Vocabulary.from_metadata(target_file.metadata, config.target.path)
            shares_vocabulary = check_draft(config, vocabulary)
            fitted = fitted if shares_vocabulary else settle(config, shares_vocabulary=False)
        config, planned = fitted.config, Planned(device_uses(fitted.plan), fitted.changes)
        on_plan(planned)
        layouts = {role: plan.layout for role, plan in fitted.plan.models.items()}
        overlaps = check_overlap(config.overlap, layouts[TARGET], layouts.get(DRAFT))
        workers, workers_of_draft = divide_workers(links, layouts[TARGET], layouts.get(DRAFT))
        target = _load_target(config, on_progress)
        undo.callback(target.close)
        spares = range(config.n_parallel, config.n_parallel * (1 + N_SPARE if overlaps else 1))
        draft = None
        if config.draft is not None:
            shown = partial(on_progress, _stage("draft model", config.draft))
            n_ctx = draft_context(config.n_ctx, shares_vocabulary=shares_vocabulary)
            draft = load_draft(config, n_ctx, len(spares), layouts[DRAFT], workers_of_draft, shown, on_loss)
            undo.callback(draft.close)
        context = _context(config, target, draft, vocabulary, shares_vocabulary)
        pool = DrafterPool(context, config.drafters)
        admission = _admission(config, target, vocabulary, pool, context)
        thread = _draft_thread(config, undo) if overlaps else None
        costs = _costs(config, layouts, target, draft, thread, on_progress)
        info = _engine_info(config, target, draft, layouts, planned, started_s)
        note_activity = load_library().abort_report.set_activity
        work = WorkLog(on_work)
        overlap = None if thread is None else Overlap(thread, costs, spares, config.overlap, work.note)
        drafting = Drafting(pool, costs, remembers=config.remembers, overlap=overlap, on_work=work.note)
        n_kept = _n_prefix_tokens(config, target)
        stepper = Stepper(target, drafting, config.n_parallel, note_activity, on_round, work, n_kept)
        prefix_file = _prefix_file(config, stepper)
        undo.pop_all()
        return LoadedEngine(stepper, admission, info, tuple(workers), prefix_file)


def _connect(config: EngineConfig, on_worker_lost: LostHandler, undo: ExitStack) -> list[WorkerLink]:
    links = connect(config.workers, on_worker_lost)
    for link in links:
        undo.callback(link.close)
    return links


def _load_target(config: EngineConfig, on_progress: LoadProgress) -> Runtime:
    shown = partial(on_progress, _stage("target model", config.target))
    target = load_model(config.target, "target model", config.n_ctx, config.n_parallel, shown)
    if config.n_parallel > target.n_batch:
        target.close()
        raise ConfigError(
            f"{config.n_parallel} parallel sequences are more than the {target.n_batch} rows of a batch",
            remedy=f"use --parallel {target.n_batch} or less",
        )
    return target


def _stage(role: str, config: ModelConfig) -> str:
    return f"{role} {Path(config.path).name}"


def _admission(
    config: EngineConfig,
    target: Runtime,
    vocabulary: Vocabulary,
    pool: DrafterPool,
    context: DrafterContext,
) -> Admission:
    return Admission(
        vocabulary,
        target.n_vocab,
        target.n_ctx,
        acceptance_spec=config.acceptance,
        draft_length_spec=config.draft_length,
        pool=pool,
        grammars=GrammarCompiler(context.target_tokenizer),
    )


def _n_prefix_tokens(config: EngineConfig, target: Runtime) -> int:
    """What the prefix cache may keep: unless told otherwise as much as a full sequence, or a quarter of all
    cells, since attention passes over every one below the highest that it needs."""
    if not config.remembers:
        return 0
    if config.n_prefix_tokens is None:
        return max(target.n_ctx, target.cache.n_cells // 4)
    return config.n_prefix_tokens


def _prefix_file(config: EngineConfig, stepper: Stepper) -> PrefixCacheFile | None:
    """The file of the prefix cache, which has what it held from now on."""
    if config.prefix_file is None or not stepper.prefixes.is_on:
        return None
    file = PrefixCacheFile(Path(config.prefix_file), config.target, stepper.target)
    file.read_into(stepper.prefixes)
    return file


def _draft_thread(config: EngineConfig, undo: ExitStack) -> DraftThread:
    assert config.draft is not None
    thread = DraftThread(config.draft.cores)
    undo.callback(thread.close)
    return thread


def _costs(
    config: EngineConfig,
    layouts: Mapping[str, Layout],
    target: Runtime,
    draft: DraftRuntime | None,
    thread: DraftThread | None,
    on_progress: LoadProgress,
) -> CostTable:
    """What verifying and drafting cost: as it was measured before, or measured now if anybody may draft.
    `thread` is where the draft model computes, if that is not here."""
    same_device = draft is None or draft.device.name == target.device.name
    table = CostTable(ROW_BUCKETS, _needs_model, same_device=same_device)
    if not config.drafters:
        return table
    key = machine_key() | {
        "n_ctx": config.n_ctx,
        "target": model_key(config.target, layouts[TARGET].hardware),
    }
    if config.draft is not None:
        key["draft"] = model_key(config.draft, layouts[DRAFT].hardware)
    file = CostFile(cache_dir() / "costs", key)
    if file.read_into(table):
        logger.info("what rounds cost on the devices was measured before")
        return table
    load_library().abort_report.set_activity(b"measuring costs")
    started_s = time.monotonic()
    there = draft if draft is None or thread is None else ModelOnThread(draft, thread)
    of_target, of_draft = calibrate(target, there, on_progress=partial(on_progress, CALIBRATION_STAGE))
    table.verify.set(of_target)
    table.draft.set(of_draft)
    if time.monotonic() - started_s > WORTH_KEEPING_S:
        file.write(table)
        logger.info("what rounds cost on the devices is kept for the next start")
    return table


def _needs_model(drafter: str) -> bool:
    return any(drafters.get(name).needs_model for name in drafters.check(drafter))


def _context(
    config: EngineConfig,
    target: Runtime,
    draft: DraftRuntime | None,
    vocabulary: Vocabulary,
    shares_vocabulary: bool,
) -> DrafterContext:
    def tokenizer(runtime: DraftRuntime | None, known: Vocabulary | None = None) -> Tokenizer:
        assert runtime is not None
        # Drafters encode pieces of a text, and SentencePiece would put a blank before each of them.
        metadata = {**runtime.file.metadata, "tokenizer.ggml.add_space_prefix": False}
        return Tokenizer.from_metadata(metadata, str(runtime.file.path), vocabulary=known)

    return DrafterContext(
        n_vocab=target.n_vocab,
        n_ctx=target.n_ctx,
        n_sequences=config.n_parallel,
        end_tokens=vocabulary.eog_ids,
        draft_model=draft,
        target_tokenizer=cache(partial(tokenizer, target, vocabulary)),
        draft_tokenizer=cache(partial(tokenizer, draft)),
        shares_vocabulary=shares_vocabulary,
    )


def _engine_info(
    config: EngineConfig,
    target: Runtime,
    draft: DraftRuntime | None,
    layouts: Mapping[str, Layout],
    planned: Planned,
    started_s: float,
) -> EngineInfo:
    return EngineInfo(
        target=_model_info(config.target, target, layouts[TARGET]),
        draft=None
        if draft is None or config.draft is None
        else _model_info(config.draft, draft, layouts[DRAFT]),
        n_ctx=target.n_ctx,
        n_parallel=config.n_parallel,
        drafters=config.drafters,
        acceptance=config.acceptance,
        draft_length=config.draft_length,
        load_ms=1000.0 * (time.monotonic() - started_s),
        memory=planned.memory,
        changes=planned.changes,
    )


def _model_info(config: ModelConfig, runtime: DraftRuntime, layout: Layout) -> ModelInfo:
    file = runtime.file
    path = Path(config.path)
    return ModelInfo(
        path=config.path,
        name=file.string("general.name", default=path.stem),
        architecture=file.architecture,
        device=str(layout),
        n_vocab=runtime.n_vocab,
        n_embd=runtime.hparams.n_embd,
        n_ctx_train=runtime.hparams.n_ctx_train,
        n_bytes=path.stat().st_size,
    )
