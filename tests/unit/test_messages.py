"""Messages survive the wire, errors keep their type, and merged events lose nothing."""

from __future__ import annotations

import msgspec
import pytest

from lucebox import errors
from lucebox.core import Origin
from lucebox.engine.messages import (
    Cancel,
    Event,
    Failed,
    Finish,
    Loading,
    Message,
    Shutdown,
    StepEvent,
    Submit,
    TokenLogprobs,
    is_last,
)
from lucebox.engine.timings import DraftedRound
from lucebox.sampling.params import SamplingParams, SpeculativeParams

STEP = StepEvent(
    id="a",
    tokens=[1, 2],
    origins=[Origin.ACCEPTED, Origin.BONUS],
    drafted=[DraftedRound("model", 1, 1, 1)],
    round=1,
    logprobs=[TokenLogprobs(1, -0.5, [(1, -0.5)]), TokenLogprobs(2, -1.0, [])],
    time_ms=10.0,
)
LAST = StepEvent(
    id="a",
    tokens=[3],
    origins=[Origin.CORRECTED],
    drafted=[DraftedRound("suffix", 2, 2, 0)],
    round=2,
    logprobs=[TokenLogprobs(3, -2.0, [])],
    time_ms=20.0,
    finish=Finish(
        reason="stop", stop_string=b"\xff\n", keep_bytes=7, timings=DraftedRound("model", 1, 1, 1).timings()
    ),
)


def through(value: object, kind: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


@pytest.mark.parametrize(
    "event", [STEP, LAST, Loading("target", 0.5), Failed(id=None, kind="X", message="m")]
)
def test_events_survive_the_wire(event: Event) -> None:
    assert through(event, Event) == event


def test_requests_survive_the_wire() -> None:
    params = SamplingParams(
        seed=2**64 - 1,
        logit_bias={7: -1.5},
        stop=("é", "\n"),
        speculative=SpeculativeParams(enabled=False, draft_length="fixed:n=2"),
    )
    for message in (Submit(id="a", prompt=[1], params=params, seed=-(2**63)), Cancel("a"), Shutdown()):
        assert through(message, Message) == message


def test_unknown_fields_are_refused() -> None:
    raw = msgspec.to_builtins(Submit(id="a", prompt=[1], params=SamplingParams(), seed=1)) | {"promt": []}
    with pytest.raises(msgspec.ValidationError, match="promt"):
        through(raw, Message)


@pytest.mark.parametrize(
    "error",
    [
        errors.ContextLengthError(16, 20),
        errors.RequestError("bad", param="stop", code="x", remedy="do"),
        errors.ModelFileError("m.gguf", "magic", "is wrong", remedy="fetch it again"),
        errors.VocabularyMismatchError("differ", remedy="use another"),
        errors.OutOfCellsError(3, 2, 1),
    ],
)
def test_errors_arrive_as_they_were_raised(error: errors.LuceboxError) -> None:
    event = through(Failed.of("a", error), Event)
    assert isinstance(event, Failed)
    arrived = event.error()
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_a_bug_arrives_as_an_engine_error_that_names_it() -> None:
    error = Failed.of(None, KeyError("k")).error()
    assert type(error) is errors.EngineError
    assert "KeyError" in str(error)


def test_a_kind_that_is_no_error_is_not_looked_up() -> None:
    assert type(Failed(id=None, kind="annotations", message="m").error()) is errors.EngineError


def test_merged_events_lose_nothing() -> None:
    merged = STEP.followed_by(LAST)
    assert merged.tokens == [1, 2, 3]
    assert merged.origins == [*STEP.origins, *LAST.origins]
    assert [entry.token for entry in merged.logprobs or ()] == [1, 2, 3]
    assert (merged.n_drafted, merged.n_rounds, merged.round) == (3, 2, 2)
    assert merged.drafters == ["model", "suffix"]
    assert merged.drafted == [*STEP.drafted, *LAST.drafted]
    assert merged.finish == LAST.finish
    assert merged.time_ms == 20.0


def test_the_last_event_is_known() -> None:
    assert not is_last(STEP)
    assert is_last(LAST)
    assert is_last(Failed(id="a", kind="EngineError", message="m"))
