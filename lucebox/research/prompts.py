"""Prompts in the manner of HumanEval (Chen et al. 2021): a signature and what the function is to do."""

from __future__ import annotations

CODE = (
    '''def count_vowels(text: str) -> dict[str, int]:
    """Count how often each vowel occurs in text, ignoring case.

    >>> count_vowels("Banana")
    {'a': 3}
    """
''',
    '''from typing import List


def running_median(values: List[float]) -> List[float]:
    """Return, for every prefix of values, the median of that prefix.

    >>> running_median([5.0, 1.0, 3.0])
    [5.0, 3.0, 3.0]
    """
''',
    '''def roman_to_int(numeral: str) -> int:
    """Convert a Roman numeral such as "XIV" to an integer. Raise ValueError for an unknown letter.

    >>> roman_to_int("XIV")
    14
    """
''',
    '''from typing import List, Tuple


def merge_intervals(intervals: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Merge overlapping intervals and return them in ascending order.

    >>> merge_intervals([(1, 3), (8, 9), (2, 6)])
    [(1, 6), (8, 9)]
    """
''',
    '''def is_balanced(brackets: str) -> bool:
    """Tell whether every bracket of ()[]{} in the string is closed in the right order.

    >>> is_balanced("([]{})")
    True
    >>> is_balanced("(]")
    False
    """
''',
    '''import re


def parse_duration(text: str) -> int:
    """Convert a duration such as "1h 20m 5s" to seconds. Any part may be missing.

    >>> parse_duration("1h 5s")
    3605
    """
''',
    '''from collections import deque
from typing import Dict, List


def shortest_path(graph: Dict[str, List[str]], start: str, goal: str) -> List[str]:
    """Return a shortest path from start to goal by breadth-first search, or [] if there is none.

    >>> shortest_path({"a": ["b", "c"], "b": ["d"], "c": [], "d": []}, "a", "d")
    ['a', 'b', 'd']
    """
''',
    '''class LruCache:
    """A mapping that holds at most `capacity` items and forgets the one that was used longest ago.

    >>> cache = LruCache(1)
    >>> cache.put("a", 1)
    >>> cache.put("b", 2)
    >>> cache.get("a") is None
    True
    """

''',
)
