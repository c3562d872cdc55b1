"""From the sampling fields of a request to SamplingParams, for APIs that have their own names for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucebox.errors import RequestError
from lucebox.sampling.params import SamplingParams
from lucebox.server.errors import ApiError


def sampling_params(given: Mapping[str, Any], n_vocab: int, names: Mapping[str, str]) -> SamplingParams:
    """`given` but for what is None. `names` tells what a field of SamplingParams is called in the request.

    Raises ApiError naming the request's field that is out of range.
    """
    params = SamplingParams(**{name: value for name, value in given.items() if value is not None})
    try:
        params.validate(n_vocab)
    except RequestError as error:
        ours = error.param or ""
        name = names.get(ours, ours)
        raise ApiError(str(error).replace(ours, name, 1), param=name, code="invalid_value") from None
    return params
