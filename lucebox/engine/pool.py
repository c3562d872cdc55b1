"""The drafters of an engine, by the names that flags and requests know them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucebox import drafters
from lucebox.drafters.base import Drafter, DrafterContext
from lucebox.errors import ConfigError
from lucebox.plugins import parse_spec


class DrafterPool:
    """Makes a drafter when it is first asked for, and keeps it. `defaults` are for requests that name none,
    preferred first. Owns its drafters, and the draft model that those who need one share."""

    def __init__(self, context: DrafterContext, defaults: Sequence[str]) -> None:
        self._context = context
        self.defaults = tuple(defaults)
        self._made: dict[str, Drafter] = {}
        for spec in defaults:
            self.get(spec)

    @classmethod
    def of(cls, context: DrafterContext, made: Mapping[str, Drafter]) -> DrafterPool:
        """A pool of drafters that are there already."""
        pool = cls(context, ())
        pool._made.update(made)
        pool.defaults = tuple(made)
        return pool

    def get(self, spec: str) -> Drafter:
        """The drafter of `name:option=value,…`. Raises ConfigError."""
        if spec not in self._made:
            name, _ = parse_spec(spec)
            if drafters.get(name).needs_model and self._context.draft_model is None:
                raise ConfigError(
                    f"the drafter {name!r} needs a draft model", remedy="name one with --draft-model"
                )
            self._made[spec] = drafters.create(spec, self._context)
        return self._made[spec]

    def singles(self) -> list[Drafter]:
        """Every drafter that was made, none of them twice."""
        return list(self._made.values())

    def close(self) -> None:
        for drafter in self.singles():
            drafter.close()
