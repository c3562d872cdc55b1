from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from jinja2 import TemplateError as JinjaError

from lucebox.text.template_sandbox import MAX_TEXT_CHARS, TemplateSandbox

DOUBLING = "{%% set ns = namespace(a='ab') %%}{%% for i in range(64) %%}%s{%% endfor %%}"
ESCAPES = (
    "{{ ''.__class__.__mro__ }}",
    "{{ ''['__class__'] }}{{ messages.__class__.__base__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ ('' | attr('__class__')).mro() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.name }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
)
ENDLESS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{{ range(99999) | map('replace', '1', 'x' * 9999) | list | length }}",
)
HUGE = (
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 * 'a' }}",
    "{{ [1] * 10 ** 10 }}",
    "{{ (10 ** 1000) ** (10 ** 6) }}",
    "{{ '%0999999999d' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '%0999999999d' | format(1) }}",
    "{{ '%*d' | format(999999999, 1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 999999999) }}",
    "{{ 'a'.ljust(10 ** 9) }}",
    "{{ 'a' | center(10 ** 9) }}",
    "{{ 'a' | indent(10 ** 9, first=true) }}",
    "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "{{ messages | tojson(indent=10 ** 9) }}",
    "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
    "{{ 'a'.encode() * 10 ** 9 }}",
    "{{ (1).to_bytes(10 ** 9, 'big') }}",
    "{{ strftime_now('%Y' * 99999) }}",
    "{{ lipsum(99999) }}",
    "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    DOUBLING % "{% set ns.a = ns.a ~ ns.a %}",
    DOUBLING % "{% set ns.a = ns.a + ns.a %}",
    DOUBLING % "{% set ns.a = [ns.a, ns.a] | join %}",
    DOUBLING % "{% set ns.a = ''.join([ns.a, ns.a]) %}",
    DOUBLING % "{% set ns.a = ns.a.replace('a', ns.a) %}",
    DOUBLING % "{% set ns.a = ns.a | replace('a', ns.a) %}",
    DOUBLING % "{% set ns.a = '%s%s' % (ns.a, ns.a) %}",
    DOUBLING % "{% set ns.a = '{0}{0}'.format(ns.a) %}",
    DOUBLING % "{% set b %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = b %}",
    DOUBLING % "{% set ns.a = [ns.a, ns.a] | tojson %}",
    DOUBLING % "{% set ns.a = [ns.a, ns.a] | string %}",
    DOUBLING % "{% set ns.a = [ns.a, ns.a] %}" + "{{ ns.a }}",
)


def run(source: str, *, max_seconds: float = 1.0, **variables: Any) -> str:
    render = TemplateSandbox(max_seconds=max_seconds).compile_template(source)
    return render(messages=[{"role": "user", "content": "x"}], **variables)


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_outside_is_reached(source: str) -> None:
    with pytest.raises((JinjaError, TypeError, KeyError)):
        run(source)


@pytest.mark.parametrize("source", [*ENDLESS, *HUGE])
def test_time_and_memory_are_bounded(source: str) -> None:
    start_s = time.monotonic()
    with pytest.raises((JinjaError, RecursionError, OverflowError, ValueError)):
        run(source)
    assert time.monotonic() - start_s < 20.0  # a busy machine; unbounded they take hours


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.replace('\\n', ' ') }}",
        "{{ x | replace('1', '22') | trim | indent(4) }}",
        "{{ ' '.join([x, x]) }}{{ [x, x] | join(', ') }}{{ x ~ x }}{{ x + x }}{{ '%s' % x }}",
        "{% for line in x.split('\\n') %}{{ line | upper }}{% endfor %}",
        "{{ {'x': x} | tojson(indent=4) }}{{ '=' * 80 }}",
        "{% for i in range(99) %}{{ '{}{}'.format(x[:999], 1733097600) }}{{ '%d' % 1733097600 }}{% endfor %}",
    ],
)
def test_long_honest_texts_pass(source: str) -> None:
    text = "A line of 1234567890 digits and words.\n" * 5000
    assert len(run(source, max_seconds=60.0, x=text)) >= 80_000


def test_a_text_is_printed_up_to_the_limit() -> None:
    assert len(run("{{ x }}", max_seconds=60.0, x="x" * MAX_TEXT_CHARS)) == MAX_TEXT_CHARS
    with pytest.raises(JinjaError, match="prints more"):
        run("{{ x }}", max_seconds=60.0, x="x" * (MAX_TEXT_CHARS + 1))


def test_threads_have_budgets_of_their_own() -> None:
    render = TemplateSandbox().compile_template("{% for i in range(2000) %}{{ x }}{% endfor %}")
    lengths: list[int] = []

    def work(n: int) -> None:
        lengths.append(len(render(x="x" * n)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1000, 1008)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lengths) == [2000 * n for n in range(1000, 1008)]
