"""Drafters, one per file: who guesses what comes next."""

from __future__ import annotations

from lucebox.drafters.base import Drafter, DrafterContext
from lucebox.errors import ConfigError
from lucebox.plugins import Registry, check_length, parse_spec

__all__ = ["Drafter", "DrafterContext", "check", "check_model", "create", "get", "names", "split"]

_registry: Registry[Drafter] = Registry(
    "lucebox.drafters",
    "lucebox.drafters",
    helpers=("base", "combination", "drawing", "foreign", "kernels", "reference", "translation"),
)
names = _registry.names
get = _registry.get


def create(spec: str, context: DrafterContext) -> Drafter:
    """The one drafter of `name:option=value,…`. Raises ConfigError."""
    return _registry.create(spec, context)


def split(spec: str) -> list[str]:
    """The specs of a combination such as `ngram:n=3,n_min=2,model`, whose further parts go on behind what the
    first ones guessed. Raises ConfigError."""
    check_length(spec)
    parts: list[str] = []
    for piece in (text.strip() for text in spec.split(",")):
        if parts and "=" in piece and ":" not in piece.partition("=")[0]:
            parts[-1] += f",{piece}"  # one more option of the part in front
        else:
            parts.append(piece)
    for part in parts:
        parse_spec(part)
    if len(set(parts)) < len(parts):
        raise ConfigError(f"{spec!r} has a drafter twice", remedy="name each one once")
    return parts


def check(spec: str) -> list[str]:
    """The names in a combination. Raises ConfigError for a name or an option that there is not; what values
    options may have is told by `create`."""
    parts = split(spec)
    for part in parts:
        _registry.check(part)
    return [parse_spec(part)[0] for part in parts]


def check_model(name: str, *, has_model: bool) -> None:
    """Raises ConfigError when a drafter guesses by a draft model and there is none."""
    if get(name).needs_model and not has_model:
        raise ConfigError(f"the drafter `{name}` needs a draft model", remedy="name one with --draft-model")
