"""The drafters of an engine, by the names that flags and requests know them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucebox import drafters
from lucebox.drafters.base import Drafter, DrafterContext
from lucebox.drafters.combination import Combination
from lucebox.errors import ConfigError
from lucebox.plugins import parse_spec

# Each may hold megabytes, and requests choose among options without end.
MAX_WITH_OPTIONS = 16
MAX_COMBINATIONS = 64


class DrafterPool:
    """Makes a drafter when it is first asked for, and keeps it. `defaults` are for requests that name none,
    preferred first. Owns its drafters, and the draft model that those who need one share.

    A drafter that is part of several combinations is there once, and learns from the rounds of all of them.
    """

    def __init__(self, context: DrafterContext, defaults: Sequence[str]) -> None:
        self._context = context
        self.defaults = tuple(defaults)
        self._singles: dict[str, Drafter] = {}
        self._combinations: dict[str, Combination] = {}
        for spec in defaults:
            self.get(spec)

    @classmethod
    def of(cls, context: DrafterContext, made: Mapping[str, Drafter]) -> DrafterPool:
        """A pool of drafters that are there already."""
        pool = cls(context, ())
        pool._singles.update(made)
        pool.defaults = tuple(made)
        return pool

    def get(self, spec: str) -> Drafter:
        """The drafter of `name:option=value,…`, or of several such, combined. Raises ConfigError."""
        known = self._singles.get(spec) or self._combinations.get(spec)
        if known is not None:
            return known
        parts = [self._single(part) for part in drafters.split(spec)]
        if len(parts) == 1:
            return parts[0]
        if len(self._combinations) >= MAX_COMBINATIONS:
            self._combinations.clear()  # they keep nothing
        self._combinations[spec] = Combination(self._context, parts)
        return self._combinations[spec]

    def get_for_request(self, spec: str) -> Drafter:
        """As `get`; raises ConfigError too for a new drafter with options that operators choose."""
        for part in drafters.split(spec):
            if part not in self._singles:
                _check_options_of_requests(part)
        return self.get(spec)

    def singles(self) -> list[Drafter]:
        """Every drafter that was made, none of them twice, and no combination."""
        return list(self._singles.values())

    def parts(self, specs: Sequence[str]) -> list[Drafter]:
        """The single drafters that `specs` are made of, none of them twice."""
        made = map(self.get, specs)
        parts = [part for d in made for part in (d.parts if isinstance(d, Combination) else (d,))]
        return list({id(part): part for part in parts}.values())

    def remember(self, tokens: Sequence[int], n_prompt: int) -> None:
        """Every drafter learns from a whole request."""
        for drafter in self.singles():
            drafter.remember(tokens, n_prompt)

    def forget(self) -> None:
        """Every drafter drops what it learned from requests."""
        for drafter in self.singles():
            drafter.forget()

    def close(self) -> None:
        for drafter in self.singles():
            drafter.close()

    def _single(self, spec: str) -> Drafter:
        if spec not in self._singles:
            name, _ = parse_spec(spec)
            plugin, context = drafters.get(name), self._context
            drafters.check_model(name, has_model=context.draft_model is not None)
            if plugin.needs_model and not (plugin.any_vocabulary or context.shares_vocabulary):
                raise ConfigError(
                    f"the drafter {name!r} needs a draft model of the target's vocabulary",
                    remedy="use the drafter tli or slem",
                )
            self._check_room(spec)
            self._singles[spec] = drafters.create(spec, self._context)
        return self._singles[spec]

    def _check_room(self, spec: str) -> None:
        known = [single for single in self._singles if ":" in single]
        if ":" in spec and len(known) >= MAX_WITH_OPTIONS:
            raise ConfigError(
                f"the engine has {len(known)} drafters with options, and makes no further one for {spec!r}",
                remedy=f"use one of {'; '.join(known)}",
            )


def _check_options_of_requests(spec: str) -> None:
    name, options = parse_spec(spec)
    kept = sorted(drafters.get(name).operator_options.intersection(options))
    if kept:
        raise ConfigError(
            f"the drafter {name!r} takes {', '.join(kept)} from whoever starts the engine only",
            remedy=f"leave it out, or start the engine with --drafter {spec}",
        )
