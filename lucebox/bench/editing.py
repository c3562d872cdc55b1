"""A file to be edited, what the edit must lead to, and the check of an answer."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

MIN_CHANGED_SHARE = 0.05

# (class, plural, key, text field, number field, limit)
_ENTITIES = (
    ("Invoice", "invoices", "number", "customer", "amount", 500),
    ("Shipment", "shipments", "code", "harbour", "weight", 1200),
    ("Booking", "bookings", "ticket", "guest", "nights", 14),
    ("Harvest", "harvests", "field", "crop", "tonnes", 40),
    ("Repair", "repairs", "job", "mechanic", "hours", 8),
    ("Reading", "readings", "sensor", "station", "degrees", 35),
)
_NAMES = (("normalise", "tidy"), ("cleaned", "trimmed"))

_HEADER = '''"""Reads, checks and prints {plurals}."""

import csv
import io
from dataclasses import dataclass


def {old}(text):
    """Trim a field and join what blanks keep apart."""
    return " ".join(text.strip().split())
'''

_ENTITY = '''

@dataclass
class {Entity}:
    {key}: str
    {label}: str
    {value}: float

    def is_large(self):
        return self.{value} > {limit}


def read_{plural}(source):
    """Parse {plural} from text with a heading line."""
    rows = csv.reader(io.StringIO(source))
    next(rows)
    return [{Entity}({old}(row[0]), row[1], float(row[2])) for row in rows]
'''

_SUMMARIES = (
    '''

def {value}_by_{label}({plural}):
    """Sum up the {value} of each {label}."""
    totals = {{}}
    for {entity} in {plural}:
        name = {old}({entity}.{label}).title()
        totals[name] = totals.get(name, 0.0) + {entity}.{value}
    return totals
''',
    '''

def print_{plural}({plural}, width=24):
    """Print a line per {entity}, the largest first."""
    for {entity} in sorted({plural}, key=lambda it: -it.{value}):
        label = {old}({entity}.{label})[:width]
        mark = "*" if {entity}.is_large() else " "
        print(f"{{{entity}.{key}:>10}} {{label:<{{width}}}} {{{entity}.{value}:10.2f}} {{mark}}")
''',
    '''

def find_{entity}({plural}, wanted):
    """The first {entity} whose {label} is the wanted one, or None."""
    wanted = {old}(wanted).lower()
    for {entity} in {plural}:
        if {entity}.{label}.lower() == wanted:
            return {entity}
    return None
''',
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A Python file, and what to do to it: rename one function. The change touches `n_changed` lines."""

    source: str
    expected: str
    instruction: str

    @property
    def n_changed(self) -> int:
        pairs = zip(self.source.splitlines(), self.expected.splitlines(), strict=True)
        return sum(before != after for before, after in pairs)

    def problem(self, answer: str) -> str:
        """What is wrong with the file in `answer`; empty when it is the expected one, line by line."""
        found = code_block(answer)
        if found is None:
            return "no code block that ends"
        got, wanted = _lines(found), _lines(self.expected)
        if len(got) != len(wanted):
            return f"{len(got)} lines instead of {len(wanted)}"
        n_wrong = sum(a != b for a, b in zip(got, wanted, strict=True))
        return f"{n_wrong} of {len(wanted)} lines wrong" if n_wrong else ""


def make_edit(seed: int) -> Edit:
    """The same file and instruction for the same seed."""
    draw = random.Random(seed)
    old, new = draw.choice(_NAMES)
    chosen = draw.sample(_ENTITIES, len(_SUMMARIES))
    source = _HEADER.format(old=old, plurals=", ".join(plural for _, plural, *_ in chosen))
    for (name, plural, key, label, value, limit), summary in zip(chosen, _SUMMARIES, strict=True):
        source += (_ENTITY + summary).format(
            Entity=name, entity=name.lower(), plural=plural, key=key, label=label, value=value,
            limit=limit, old=old,
        )  # fmt: skip
    edit = Edit(
        source=source,
        expected=re.sub(rf"\b{old}\b", new, source),
        instruction=f"Rename the function `{old}` to `{new}` everywhere in this file, and change nothing "
        f"else. Return the whole file with the change, in one code block.\n\n```python\n{source}```",
    )
    assert edit.n_changed >= MIN_CHANGED_SHARE * len(source.splitlines())
    return edit


def code_block(answer: str) -> str | None:
    """The inside of the first fenced block that is closed, None without one."""
    found = re.search(r"```[^\n]*\n(.*?)^```", answer, re.DOTALL | re.MULTILINE)
    return found[1] if found else None


def _lines(code: str) -> list[str]:
    return [line.rstrip() for line in code.strip().splitlines()]
