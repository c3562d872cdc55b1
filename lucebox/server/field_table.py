"""The fields of requests as a table, made from their types."""

from __future__ import annotations

import msgspec
from msgspec import inspect

from lucebox.sampling.params import SamplingParams
from lucebox.server.sampled_request import SampledRequest, Speculative
from lucebox.server.schema import COMPLETION_MAX_TOKENS, ChatRequest, CompletionRequest

# Defaults that SamplingParams does not tell, or that differ between the endpoints.
_DEFAULTS = {"n": "1", "max_tokens": f"chat: none, completions: {COMPLETION_MAX_TOKENS}", "logprobs": ""}


def markdown_table() -> str:
    """Of POST /v1/chat/completions and /v1/completions, with defaults."""
    rows = ["| Field | Of | Default | Meaning |", "|---|---|---|---|"]
    for name, where, meaning in _fields():
        rows.append(f"| `{name}` | {where} | {_default(name)} | {meaning} |")
    return "\n".join(rows) + "\n"


def speculative_table() -> str:
    """Of the object that `speculative` may be."""
    rows = ["| Field of `speculative` | Meaning |", "|---|---|"]
    rows += [f"| `{name}` | {meaning} |" for name, meaning in _meanings(Speculative).items()]
    return "\n".join(rows) + "\n"


def _fields() -> list[tuple[str, str, str]]:
    """Name, endpoint and meaning, those that must be there first."""
    common = _meanings(SampledRequest)
    rows = [(name, "both", meaning) for name, meaning in common.items()]
    for kind, where in ((ChatRequest, "chat"), (CompletionRequest, "completions")):
        own = [(name, where, meaning) for name, meaning in _meanings(kind).items() if name not in common]
        rows += own
        required = {field.name for field in msgspec.structs.fields(kind) if field.required}
        rows.sort(key=lambda row: row[1] != where or row[0] not in required)
    return rows


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What each field's note says of it. KeyError for a field without one."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.name: _note(field) for field in info.fields}


def _note(field: inspect.Field) -> str:
    assert isinstance(field.type, inspect.Metadata), f"{field.name} has no description"
    note = (field.type.extra_json_schema or {})["description"]
    assert isinstance(note, str)
    return note.replace("|", "\\|")


def _default(name: str) -> str:
    if name in _DEFAULTS:
        return _DEFAULTS[name]
    default = getattr(SamplingParams(), name, None)
    if isinstance(default, bool) or not isinstance(default, int | float | tuple):
        return ""
    return ", ".join(f"`{text!r}`" for text in default) if isinstance(default, tuple) else f"{default:g}"
