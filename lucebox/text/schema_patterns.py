"""How many regular expressions a JSON schema holds one string to at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def n_conjoined(schema: Any) -> int:
    """The most patterns and formats that one string must match together, by `allOf` and `$ref`; no less than
    it is, where references are not to this document. Raises RecursionError for one that is nested too deeply.
    """
    conjunctions = _Conjunctions(schema)
    return max(map(conjunctions.of, _objects(schema)), default=0)


class _Conjunctions:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._known: dict[int, int] = {}

    def of(self, node: Any) -> int:
        """At one schema of the document; a reference back to one under way adds nothing."""
        if not isinstance(node, dict):
            return 0
        if id(node) not in self._known:
            self._known[id(node)] = 0
            self._known[id(node)] = self._count(node)
        return self._known[id(node)]

    def _count(self, node: dict[str, Any]) -> int:
        n = int("pattern" in node) + int("format" in node)
        n += sum(map(self.of, _list(node.get("allOf"))))
        n += sum(max(map(self.of, _list(node.get(key))), default=0) for key in ("anyOf", "oneOf"))
        if isinstance(node.get("$ref"), str):
            n += self._of_reference(node["$ref"])
        return n

    def _of_reference(self, reference: str) -> int:
        target = self._document
        if reference != "#" and not reference.startswith("#/"):
            return sum("pattern" in node or "format" in node for node in _objects(self._document))
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(part)
            elif isinstance(target, list) and part.isdecimal() and int(part) < len(target):
                target = target[int(part)]
            else:
                return 0  # which llguidance refuses
        return self.of(target)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document, outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
