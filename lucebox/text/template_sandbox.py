"""Where a model file's chat template runs: it reaches nothing outside, its time and memory are bounded."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, cast

from jinja2 import Environment, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 1 << 20
MAX_TEXT_CHARS = 1 << 22
MAX_WORK_CHARS = 1 << 28
MAX_RENDER_SECONDS = 5.0

# What no chat template needs and what makes much of little.
_REMOVED_FILTERS = ("center", "pprint", "round", "urlize", "wordwrap", "xmlattr")
_REMOVED_METHODS = frozenset(
    {"center", "encode", "expandtabs", "ljust", "maketrans", "rjust", "to_bytes", "translate", "zfill"}
)
# Filters and string methods whose result can be larger than all they are given.
_GROWING_FILTERS = ("batch", "format", "indent", "join", "replace", "slice", "string", "truncate")
_GROWING_METHODS = frozenset({"format", "format_map", "join", "replace"})
_FORMATS = ("format", "format_map")
_LAZY_FILTERS = ("batch", "map", "reject", "rejectattr", "select", "selectattr", "slice", "unique")
_LONG_NUMBER = re.compile(r"\d{4,}")
_WIDTH_FROM_ARGUMENT = re.compile(r"%[^%]*\*|\{[^}]*\{")
_MAX_INTEGER_BITS = 1 << 12
_ITEM_CHARS = 8  # a pointer

_Function = Callable[..., Any]


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it: trimmed blocks, loop controls, `raise_exception`, `strftime_now`, a
    `tojson` that leaves text as it is, and the `generation` tag.

    Beyond Jinja's sandbox, it bounds the text that a template makes, all work on the way there, and the time.
    Threads may share it.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, max_seconds: float = MAX_RENDER_SECONDS) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _GenerationTag],
            finalize=self._count_printed,
        )
        self._max_seconds = max_seconds
        self._budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        for name in _GROWING_FILTERS:
            self.filters[name] = self._guarded(name, self.filters[name])
        for name in _LAZY_FILTERS:
            self.filters[name] = self._counting(self.filters[name])
        self.filters["tojson"] = _to_json
        self.filters["_counted"] = self._counted
        self.filters["_concatenated"] = _concatenated
        self.filters["_bounded"] = _bounded
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        del self.globals["lipsum"]

    def compile_template(self, source: str) -> Callable[..., str]:
        """A function that renders `source` with given variables. Both raise whatever Jinja and Python do."""
        if len(source) > MAX_SOURCE_CHARS:
            raise JinjaError(f"the template is longer than {MAX_SOURCE_CHARS:,} characters")
        template = self.from_string(_Bounds().visit(self.parse(source)))

        def render(**variables: Any) -> str:
            token = self._budget.set(_Budget(self._max_seconds))
            try:
                return template.render(variables)
            finally:
                self._budget.reset(token)

        return render

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | int) and attr in _REMOVED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self._spend()
        method = getattr(__obj, "__wrapped__", __obj)
        text = getattr(method, "__self__", None)
        if isinstance(text, str) and method.__name__ in _GROWING_METHODS:
            args = tuple(map(__self._collected, args))
            __self._guard_growth(text, (*args, *kwargs.values()), is_format=method.__name__ in _FORMATS)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._spend()
        if operator == "+":
            return _bounded(left + right)
        if operator == "*":
            _guard_product(left, right)
        elif operator == "**":
            _guard_power(left, right)
        elif isinstance(left, str):
            self._guard_growth(left, (right,), is_format=True)
        return super().call_binop(context, operator, left, right)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._spend()
            yield item

    def _count_printed(self, value: Any) -> Any:
        self._spend(n_printed=_size(value))
        return value

    def _guarded(self, name: str, function: _Function) -> _Function:
        """The same filter (`wraps` keeps Jinja's marks on it), refusing what would grow past all bounds."""

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            args = tuple(map(self._collected, args))
            given = [arg for arg in args if not isinstance(arg, Context | EvalContext | Environment)]
            self._guard_growth(given[0], (*given[1:], *kwargs.values()), is_format=name in _FORMATS)
            return _bounded(function(*args, **kwargs))

        return guarded

    def _counting(self, function: _Function) -> _Function:
        """The same filter, each item of its result counted as work."""

        @wraps(function)
        def counting(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in function(*args, **kwargs):
                self._spend(n_worked=_size(item))
                yield item

        return counting

    def _collected(self, value: Any) -> Any:
        """A list for a lazy value, whose size nobody knows; others as they are."""
        return list(self._counted(value)) if isinstance(value, Iterator) else value

    def _guard_growth(self, value: Any, args: Iterable[Any], *, is_format: bool) -> None:
        """Counts as work the text times the largest of `args`: a length, a width or a count."""
        factors = [1, *map(_size, args)]
        if is_format and isinstance(value, str):
            factors += _widths(value, args)
        else:
            factors += [abs(arg) for arg in args if isinstance(arg, int)]
        self._spend(n_worked=max(factors) * max(_size(value), 1))

    def _spend(self, *, n_printed: int = 0, n_worked: int = 0) -> None:
        budget = self._budget.get()
        if budget is not None:
            budget.spend(n_printed, n_worked)
        else:  # a constant, folded while compiling
            _check(n_worked <= MAX_TEXT_CHARS, "makes too much text")


class _Budget:
    """What is left to one rendering."""

    __slots__ = ("deadline", "max_seconds", "n_to_print", "n_to_work")

    def __init__(self, max_seconds: float) -> None:
        self.max_seconds = max_seconds
        self.deadline = time.monotonic() + max_seconds
        self.n_to_print = MAX_TEXT_CHARS
        self.n_to_work = MAX_WORK_CHARS

    def spend(self, n_printed: int, n_worked: int) -> None:
        self.n_to_print -= n_printed
        self.n_to_work -= n_worked
        _check(self.n_to_print >= 0, f"prints more than {MAX_TEXT_CHARS:,} characters")
        _check(self.n_to_work >= 0, "makes too much text")
        _check(time.monotonic() < self.deadline, f"takes more than {self.max_seconds:g} seconds")


class _Bounds(NodeTransformer):
    """Sends what Jinja does without asking the environment through filters that count or bound it."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filter(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_concatenated")

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.filter = nodes.Filter(node.filter, "_bounded", [], [], None, None, lineno=node.lineno)
        return node


class _GenerationTag(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _filter(value: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, value), name, [], [], None, None, lineno=value.lineno)


def _widths(pattern: str, args: Iterable[Any]) -> list[int]:
    """The field widths in a format, and the numbers it may take for one from its arguments."""
    widths = [int(number[:10]) for number in _LONG_NUMBER.findall(pattern)]
    if _WIDTH_FROM_ARGUMENT.search(pattern):
        for arg in args:
            items = arg if isinstance(arg, tuple | list) else arg.values() if isinstance(arg, dict) else [arg]
            widths += [abs(item) for item in items if isinstance(item, int)]
    return widths


def _concatenated(values: list[Any]) -> str:
    _bounded(values)
    text = "".join(map(str, values))
    _bounded(text)
    return text


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and _size(value) > MAX_TEXT_CHARS:
        raise SecurityError(f"the template makes more than {MAX_TEXT_CHARS:,} characters")
    return value


def _guard_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right.bit_length() <= _MAX_INTEGER_BITS, "multiplies too large numbers")
    for value, factor in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(factor, int):
            _check(_size(value) * factor <= MAX_TEXT_CHARS, f"repeats a text {factor} times")


def _guard_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _check(base.bit_length() * exponent <= _MAX_INTEGER_BITS, "raises a number to too high a power")


def _check(within_bounds: bool, problem: str) -> None:
    if not within_bounds:
        raise SecurityError(f"the template {problem}")


def _size(value: Any) -> int:
    """The characters in a value, nested ones too, and what its items take; counting ends past the limit."""
    n = 0
    pending = [value]
    while pending and n <= MAX_TEXT_CHARS:
        item = pending.pop()
        if isinstance(item, str | bytes):
            n += len(item)
        elif isinstance(item, dict):
            n += 2 * _ITEM_CHARS * len(item)
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            n += _ITEM_CHARS * len(item)
            pending += item
    return n


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates were written for: without HTML escapes, unlike Jinja's own."""
    _check(not isinstance(indent, int) or indent <= 16, "indents JSON by more than 16")
    _bounded([value])
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateRefusalError(message)


def _strftime_now(format: str) -> str:
    _check(len(format) <= 256, "formats a date with too long a pattern")
    return datetime.now().strftime(format)


class TemplateRefusalError(JinjaError):
    """What a template raises itself, about messages it does not take."""
