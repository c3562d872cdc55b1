"""Whatever a body holds, it is understood or refused: nothing but an ApiError comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucebox.server.decode import decode
from lucebox.server.errors import ApiError
from lucebox.server.messages import template_messages
from lucebox.server.schema import (
    ChatRequest,
    CompletionRequest,
    chat_params,
    completion_params,
    refuse_unsupported,
)

LEAVES = (
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9) | st.text(max_size=5)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def bodies(struct: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    names = [field.name for field in msgspec.structs.fields(struct)]
    roles = st.sampled_from(["user", "assistant", "system", "tool", "x"])
    fields = st.dictionaries(st.sampled_from(names), JSON, max_size=3)
    messages = st.lists(st.fixed_dictionaries({"role": roles, "content": JSON}), max_size=2)
    start = {"messages": messages} if struct is ChatRequest else {"prompt": JSON}
    return st.builds(lambda a, b: {**a, **b}, st.fixed_dictionaries(start), fields)


# Many fields of many types: a busy machine takes its time to think of bodies.
patient = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


def refusal(understand: Callable[[], object]) -> ApiError | None:
    try:
        understand()
    except ApiError as error:
        return error
    return None


@patient
@given(bodies(ChatRequest))
def test_chat(body: dict[str, Any]) -> None:
    def understand() -> None:
        request = decode(msgspec.json.encode(body), ChatRequest)
        refuse_unsupported(request)
        template_messages(request.messages)
        chat_params(request, 100)

    error = refusal(understand)
    assert error is None or (error.status == 400 and error.param)


@patient
@given(bodies(CompletionRequest))
def test_completions(body: dict[str, Any]) -> None:
    def understand() -> None:
        request = decode(msgspec.json.encode(body), CompletionRequest)
        refuse_unsupported(request)
        completion_params(request, 100)

    error = refusal(understand)
    assert error is None or (error.status == 400 and error.param)


@given(st.binary(max_size=40))
def test_bytes(body: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        decode(body, ChatRequest)
    assert raised.value.status == 400
