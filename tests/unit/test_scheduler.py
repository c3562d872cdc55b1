"""Who computes next: order, fairness, chunks and slots."""

from __future__ import annotations

from lucebox.engine.admission import Admission
from lucebox.engine.messages import Submit
from lucebox.engine.prompt_scores import MAX_ROWS, PromptScores
from lucebox.engine.scheduler import PREFILL_ROWS, PREFILL_ROWS_BESIDE_DECODING, Scheduler
from lucebox.engine.sequence import NO_SLOT, EngineSequence
from lucebox.sampling.params import SamplingParams
from lucebox.text.vocabulary import Vocabulary
from tests.support.tiny_models import TinySpec, tiny_metadata

N_BATCH = 512


def sequence(id: str, n_prompt: int, group: str = "") -> EngineSequence:
    vocabulary = Vocabulary.from_metadata(tiny_metadata(TinySpec(n_vocab=8)))
    admission = Admission(vocabulary, 8, 4096, draft_length_spec="fixed:n=4")
    submit = Submit(id=id, prompt=[1] * n_prompt, params=SamplingParams(), seed=0, group=group)
    return admission.admit(submit)


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


def test_who_came_first_is_in_front_whenever_it_is_queued() -> None:
    late, early, latest = (sequence(f"r{i}", 1) for i in range(3))
    for arrived_s, added in ((2.0, late), (1.0, early), (2.0, latest)):
        added.clock.arrived_s = arrived_s
    scheduler = Scheduler(1, N_BATCH)
    for added in (late, early, latest):
        scheduler.add(added)
    assert scheduler.waiting == [early, late, latest]
    assert scheduler.admit() == [early]


def test_many_answers_to_one_client_leave_slots_to_others() -> None:
    scheduler = Scheduler(3, N_BATCH)
    for added in (
        *(sequence(f"many/{i}", 1, "many") for i in range(5)),
        sequence("r0", 1),
        sequence("r1", 1),
    ):
        scheduler.add(added)
    assert [s.id for s in scheduler.admit()] == ["many/0", "r0", "r1"]
    scheduler.add(sequence("r2", 1))
    started = []
    for _ in range(5):  # whoever has run longest ends
        scheduler.remove(scheduler.running[0])
        started += [s.id for s in scheduler.admit()]
    assert started == ["many/1", "r2", "many/2", "many/3", "many/4"], "it always has one, and all when alone"


def test_prompts_alone_share_a_large_chunk() -> None:
    scheduler = filled(3, 100, 100, 100)
    assert advance(scheduler) == [("r0", 100), ("r1", 100), ("r2", PREFILL_ROWS - 200)]


def first_tokens(*prompts: int) -> list[int]:
    """After how many steps each prompt is computed."""
    scheduler = filled(len(prompts), *prompts)
    steps = [0] * len(prompts)
    for n_steps in range(1, 1000):
        for sequence in scheduler.running:
            if sequence.n_missing == 1:
                scheduler.remove(sequence)  # its answer is another test's
        for feed in scheduler.next_turn().feeds:
            if feed.draws:
                steps[int(feed.sequence.id[1:])] = n_steps
            feed.sequence.n_cached += feed.n_rows - feed.draws
    return steps


def test_prompts_that_are_alike_end_one_after_another() -> None:
    assert first_tokens(*[2 * PREFILL_ROWS] * 4) == [2, 4, 6, 8]
    assert first_tokens(*[PREFILL_ROWS // 2] * 8) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_prompt_waits_for_no_longer_one() -> None:
    """It has half the rows to itself, and the long one the other half."""
    long, middle = first_tokens(14 * PREFILL_ROWS, 2 * PREFILL_ROWS)
    assert (long, middle) == (16, 4)


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


def test_short_prompts_do_not_wait_for_long_ones() -> None:
    scheduler = filled(3, 1, 1000, 20)
    assert advance(scheduler) == [("r0", 1), ("r2", 20), ("r1", PREFILL_ROWS_BESIDE_DECODING - 20)]


def test_short_prompts_take_half_at_most() -> None:
    """However many come, a long prompt gets on."""
    scheduler = filled(8, 1, 1000, *[15] * 6)
    rows = dict(advance(scheduler)[1:])
    assert rows.pop("r1") >= PREFILL_ROWS_BESIDE_DECODING // 2
    assert list(rows.values()) == [15, 15, PREFILL_ROWS_BESIDE_DECODING // 2 - 30]


def test_no_prompt_starves() -> None:
    """With new short prompts in every free slot, each step, a long one goes on at half speed at least."""
    scheduler = Scheduler(4, N_BATCH)
    long = sequence("long", 1000)
    scheduler.add(long)
    n_steps = 0
    while long.n_missing > 1:
        while len(scheduler.running) + len(scheduler.waiting) < 4:
            scheduler.add(sequence(f"short{n_steps}-{len(scheduler.running)}", 20))
            scheduler.admit()
        advance(scheduler)
        for short in scheduler.running:
            if short is not long and short.n_missing == 1:
                scheduler.remove(short)
        n_steps += 1
    assert n_steps <= 2 * 1000 / PREFILL_ROWS_BESIDE_DECODING + 1


def sharing(n_parallel: int, *prompts: list[int]) -> Scheduler:
    scheduler = Scheduler(n_parallel, N_BATCH, shares_prefixes=True)
    for i, prompt in enumerate(prompts):
        scheduler.add(sequence(f"r{i}", 1))
        scheduler.waiting[-1].tokens = prompt
    scheduler.admit()
    return scheduler


def test_what_prompts_have_in_common_is_computed_for_one() -> None:
    common = [1] * 40
    scheduler = sharing(4, [*common, 2], [*common, 3, 4], [5, 6], common[:15])
    rows = dict(advance(scheduler))
    assert rows == {"r0": 41, "r2": 2, "r3": 15}, "one that is short of a block finds nothing to share"


def test_nobody_waits_for_what_is_not_computed_now() -> None:
    """As when too little may be kept: who is ahead goes on, and so does who needs more than a chunk."""
    scheduler = sharing(2, [1] * 400, [*[1] * 400, 2])
    second = scheduler.running[1]
    second.n_cached = 384
    assert dict(advance(scheduler)) == {"r1": 17, "r0": PREFILL_ROWS - 17}


def test_who_is_in_the_middle_of_a_block_computes_it_for_others() -> None:
    scheduler = sharing(2, [1] * 300, [*[1] * 300, 2])
    first, second = scheduler.running
    first.n_cached, second.n_cached = 44, 32
    assert dict(advance(scheduler)) == {"r0": PREFILL_ROWS}


def test_prompts_that_want_all_logits_share_what_a_forward_may_hold() -> None:
    scheduler = filled(4, 100, 100, 100, 100)
    for sequence in scheduler.running[:3]:
        sequence.scores = PromptScores(sequence.tokens, 0)
    scored = {s.id for s in scheduler.running[:3]}
    seen: set[str] = set()
    for _ in range(3 * 100 // MAX_ROWS + 3):
        turn = advance(scheduler)
        assert sum(n for id, n in turn if id in scored and n > 1) <= MAX_ROWS
        seen |= {id for id, _ in turn}
    assert seen == {"r0", "r1", "r2", "r3"}, "everybody's turn comes"
