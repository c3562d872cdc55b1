"""What requests give to be read: texts or token ids, one or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucebox.server.errors import ApiError


def named_inputs(field: str, given: str | list[Any]) -> list[tuple[str, object]]:
    """Each input with where it stands in the request; a list of numbers is one. Raises ApiError for none."""
    if isinstance(given, str) or (given and all(isinstance(item, int) for item in given)):
        return [(field, given)]
    if not given:
        raise ApiError(f"'{field}' is an empty list.", param=field, code="empty_array")
    return [(f"{field}[{i}]", item) for i, item in enumerate(given)]


def check_token_ids(field: str, ids: Sequence[int], n_vocab: int) -> None:
    """Raises ApiError naming the first of `ids` that the vocabulary does not have."""
    for i, token in enumerate(ids):
        if not 0 <= token < n_vocab:
            at = f"{field}[{i}]"
            raise ApiError(
                f"'{at}' is {token}, and the vocabulary has {n_vocab} tokens.", param=at, code="invalid_value"
            )
