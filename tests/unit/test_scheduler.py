"""Who computes next: order, fairness, chunks and slots."""

from __future__ import annotations

from lucebox.engine.admission import Admission
from lucebox.engine.messages import Submit
from lucebox.engine.scheduler import PREFILL_ROWS, PREFILL_ROWS_BESIDE_DECODING, Scheduler
from lucebox.engine.sequence import NO_SLOT, EngineSequence
from lucebox.sampling.params import SamplingParams
from lucebox.text.vocabulary import Vocabulary
from tests.support.tiny_models import TinySpec, tiny_metadata

N_BATCH = 512


def sequence(id: str, n_prompt: int) -> EngineSequence:
    vocabulary = Vocabulary.from_metadata(tiny_metadata(TinySpec(n_vocab=8)))
    admission = Admission(vocabulary, 8, 4096, draft_length_spec="fixed:n=4")
    return admission.admit(Submit(id=id, prompt=[1] * n_prompt, params=SamplingParams(), seed=0))


def filled(n_parallel: int, *prompts: int) -> Scheduler:
    scheduler = Scheduler(n_parallel, N_BATCH)
    for i, n_prompt in enumerate(prompts):
        scheduler.add(sequence(f"r{i}", n_prompt))
    scheduler.admit()
    return scheduler


def advance(scheduler: Scheduler) -> list[tuple[str, int]]:
    turn = scheduler.next_turn()
    for feed in turn.feeds:
        feed.sequence.n_cached += feed.n_rows - feed.draws  # as if one token was emitted where it draws
    return [(feed.sequence.id, feed.n_rows) for feed in turn.feeds]


def test_first_come_first_served_in_free_slots() -> None:
    scheduler = filled(2, 1, 1, 1)
    assert [s.id for s in scheduler.running] == ["r0", "r1"]
    assert [s.id for s in scheduler.waiting] == ["r2"]
    scheduler.remove(scheduler.running[0])
    assert [s.id for s in scheduler.admit()] == ["r2"]
    assert sorted(s.slot for s in scheduler.running) == [0, 1]
    scheduler.check_integrity()


def test_prompts_alone_share_a_large_chunk() -> None:
    scheduler = filled(3, 100, 100, 100)
    assert advance(scheduler) == [("r0", 100), ("r1", 100), ("r2", PREFILL_ROWS - 200)]


def test_prompts_take_turns() -> None:
    scheduler = filled(2, 1000, 1000)
    assert [advance(scheduler)[0][0] for _ in range(4)] == ["r0", "r1", "r0", "r1"]


def test_decoding_takes_part_in_every_step() -> None:
    scheduler = filled(3, 1, 1, 1000)
    turn = scheduler.next_turn()
    assert [(f.sequence.id, f.n_rows) for f in turn.feeds] == [
        ("r0", 1),
        ("r1", 1),
        ("r2", PREFILL_ROWS_BESIDE_DECODING),
    ]
    assert [f.draws for f in turn.feeds] == [True, True, False]
    assert turn.n_draft_rows == (N_BATCH - 2 - PREFILL_ROWS_BESIDE_DECODING) // 2


def test_nothing_to_do_is_an_empty_turn() -> None:
    scheduler = filled(2)
    assert scheduler.is_idle
    assert scheduler.next_turn().feeds == []


def test_removing_frees_the_slot() -> None:
    scheduler = filled(1, 5, 5)
    running, waiting = scheduler.running[0], scheduler.waiting[0]
    assert scheduler.find("r1") is waiting
    scheduler.remove(waiting)
    scheduler.remove(running)
    assert running.slot == NO_SLOT
    assert scheduler.is_idle
    assert scheduler.find("r0") is None
    scheduler.check_integrity()
