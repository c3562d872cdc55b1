"""Grammars over the tokens of one vocabulary, by llguidance: which tokens may come next."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gguf import TokenType
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark
from numpy.typing import NDArray

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.text.schema_patterns import n_conjoined
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary

MAX_GRAMMAR_CHARS = 1 << 19
MAX_CACHED_GRAMMARS = 16
MAX_REASON_CHARS = 500
# A step of a grammar within these takes 15 ms at most, and what it remembers 50 MB.
INITIAL_LEXER_FUEL = 200_000
MAX_LEXER_STATES = 25_000
MAX_CONJOINED_PATTERNS = 8  # each more may quadruple the time that llguidance takes to look for a match
N_STEPS_TRIED = 4
MAX_TOKENS_TRIED = 32
MIN_FORCED_CHARS = 4096
NO_TEXT = "there is no text that it allows"
_SCHEMA_WITHIN = re.compile(r"%json\s*")
_NOTHING_FITS = "NoExtension"
# White space that is not bounded lets a model write blanks for ever.
JSON_WHITE_SPACE = r"[ ]{1,2}|\r?\n[ \t]{0,20}"


@dataclass(slots=True)
class _Compilation:
    """A grammar that was compiled, which takes `seconds`. Copies of a matcher share what they find out about
    it, and llguidance bounds that in all: where one copy met the bound, it `is_used_up` for the others."""

    make: Callable[[], LLMatcher]
    seconds: float
    is_used_up: bool = False


class GrammarMatcher:
    """How far a grammar has come over tokens. One thread at a time; `copy` for another.

    Whatever it does may raise RequestError, where the grammar has become too complex; from then on all does,
    with its copies, too. One made `anew` may come further.
    """

    def __init__(self, matcher: LLMatcher, compilation: _Compilation) -> None:
        self._matcher = matcher
        self._compilation = compilation

    @classmethod
    def made(cls, make: Callable[[], LLMatcher]) -> GrammarMatcher:
        """At the beginning of the grammar that `make` compiles. Raises RequestError for a wrong one."""
        started_s = time.thread_time()
        matcher = make()
        if matcher.is_error():
            raise _refusal(matcher.get_error())
        return cls(matcher, _Compilation(make, time.thread_time() - started_s))

    @property
    def is_used_up(self) -> bool:
        return self._compilation.is_used_up

    @property
    def compile_s(self) -> float:
        """How long `anew` takes."""
        return self._compilation.seconds

    def copy(self) -> GrammarMatcher:
        return GrammarMatcher(self._matcher.deep_copy(), self._compilation)

    def anew(self) -> GrammarMatcher:
        """Another one, at the beginning, that shares nothing with this one."""
        return GrammarMatcher.made(self._compilation.make)

    def advance(self, tokens: Sequence[int]) -> int:
        """Goes on over `tokens` as far as they are allowed, and returns how many are."""
        n_tokens = self._matcher.try_consume_tokens(list(tokens))
        self._check()
        return n_tokens

    def roll_back(self, n_tokens: int) -> None:
        is_done = self._matcher.rollback(n_tokens)
        self._check()
        assert is_done, f"{n_tokens} tokens are more than there were"

    def words(self) -> NDArray[np.uint32]:
        """The tokens that may come next: bit i % 32 of word i // 32 is token i's.

        Where the grammar may end, all ends of generation are among them.
        """
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def _check(self) -> None:
        if self._matcher.is_error():
            self._compilation.is_used_up = True
            reason = self._matcher.get_error()
            if reason.startswith(_NOTHING_FITS):
                raise _refusal(NO_TEXT)
            raise _refusal(f"it became too complex on the way: {reason}")


class GrammarCompiler:
    """Makes matchers of grammars for models of the vocabulary of `tokenizer`, the latest of which are kept.

    Threads may share it. `tokenizer` is asked for with the first grammar, which takes up to a second more.

    In grammars of kind lark, `<tool_call>` stands for the token of that name: a control token, or one that a
    model's makers added under a name in angle brackets; `<[151657]>` for any token by its id. Neither is ever
    part of text: `"<tool_call>"` in quotes is spelt with ordinary tokens. So a call that a model was trained
    to write so is

        start: <tool_call> "\\n" call "\\n" </tool_call>
        call: %json {"type": "object", "properties": {"name": {"const": "f"}, "arguments": {…}}, …}

    and several schemas are alternatives of a rule, each behind a `%json` of its own. `names_token` says
    whether a vocabulary has such a token.
    """

    def __init__(self, tokenizer: Callable[[], Tokenizer]) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._compiling = threading.Lock()  # one at a time; known ones need not wait
        self._table: LLTokenizer | None = None
        self._compiled: dict[Grammar, GrammarMatcher | RequestError] = {}  # the latest last

    def find(self, grammar: Grammar) -> GrammarMatcher | None:
        """As `compile`, at once: None for a grammar that is not among the latest."""
        compiled = self._known(grammar)
        return None if compiled is None else _usable(compiled)

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at the grammar's beginning. Raises RequestError for one that is wrong or too complex."""
        if len(grammar.text) > MAX_GRAMMAR_CHARS:
            raise _refusal(
                f"it has {len(grammar.text):,} characters, and at most {MAX_GRAMMAR_CHARS:,} are allowed"
            )
        if not _is_unicode(grammar.text):
            raise _refusal("it has half a surrogate pair, which is no character")
        compiled = self._known(grammar)
        if compiled is None:
            with self._compiling:  # a hostile one takes seconds and much memory before it is refused
                compiled = self._known(grammar) or self._compile(grammar)
                self._keep(grammar, compiled)
        return _usable(compiled)

    def check(self, grammar: Grammar) -> None:
        """Raises RequestError, as `compile` does."""
        self.compile(grammar)

    def _known(self, grammar: Grammar) -> GrammarMatcher | RequestError | None:
        with self._lock:
            compiled = self._compiled.pop(grammar, None)
            if isinstance(compiled, GrammarMatcher) and compiled.is_used_up:
                return None
            if compiled is not None:
                self._compiled[grammar] = compiled
            return compiled

    def _keep(self, grammar: Grammar, compiled: GrammarMatcher | RequestError) -> None:
        with self._lock:
            self._compiled[grammar] = compiled
            if len(self._compiled) > MAX_CACHED_GRAMMARS:
                del self._compiled[next(iter(self._compiled))]

    def _compile(self, grammar: Grammar) -> GrammarMatcher | RequestError:
        """What to keep of `grammar`, if it is the reason why it cannot be used."""
        try:
            return self._compile_anew(grammar)
        except RequestError as error:
            return error

    def _compile_anew(self, grammar: Grammar) -> GrammarMatcher:
        if self._table is None:
            self._table = _table(self._tokenizer())
        limits = LLParserLimits(
            initial_lexer_fuel=INITIAL_LEXER_FUEL, max_lexer_states=MAX_LEXER_STATES, verbose_errors=False
        )
        make = partial(LLMatcher, self._table, _definition(grammar), log_level=0, limits=limits)
        compiled = GrammarMatcher.made(make)
        _check_ways_on(compiled)
        return compiled.anew() if compiled.is_used_up else compiled


def _usable(compiled: GrammarMatcher | RequestError) -> GrammarMatcher:
    if isinstance(compiled, RequestError):
        raise compiled.with_traceback(None)
    return compiled.copy()


def _check_ways_on(beginning: GrammarMatcher) -> None:
    """Raises RequestError where every answer becomes too complex within a few tokens. Where there are many
    ways to begin, or more than one goes on, answers will show."""
    path: list[int] = []
    words = beginning.words()
    for _ in range(N_STEPS_TRIED):
        tokens = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        if len(tokens) > MAX_TOKENS_TRIED:
            return
        ways: dict[int, NDArray[np.uint32]] = {}
        for token in tokens:
            beginning = beginning.anew() if beginning.is_used_up else beginning
            way = beginning.copy()
            try:
                way.advance([*path, token])
                ways[token] = way.words()
            except RequestError as error:
                refusal = error
            if len(ways) > 1:
                return
        if not ways:
            raise refusal
        ((token, words),) = ways.items()
        path.append(token)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def names_token(vocabulary: Vocabulary, token: int) -> bool:
    """Whether grammars call `token` by its name, such as `<tool_call>`, and allow it nowhere else."""
    if vocabulary.is_special(token):
        return True
    name = vocabulary.bytes_of(token)
    is_added = int(vocabulary.types[token]) == TokenType.USER_DEFINED
    return is_added and name.startswith(b"<") and name.endswith(b">")


class _Table:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.vocabulary
        ids = range(vocabulary.n_tokens)
        self._tokenizer = tokenizer
        self.eos_token_id = min(vocabulary.eog_ids)
        self.bos_token_id = vocabulary.bos_id
        self.tokens = [b"" if vocabulary.is_padding(i) else vocabulary.bytes_of(i) for i in ids]
        self.special_token_ids = [i for i in ids if names_token(vocabulary, i)]
        self._n_chars = max(MIN_FORCED_CHARS, 8 * max(map(len, self.tokens)))

    def __call__(self, text: str) -> list[int]:
        """The usual tokens of a piece of text: where a grammar leaves no choice of text, they are it.

        Of a long one, those of its beginning: for each mask llguidance asks for the whole text that must
        follow, and uses the first token.
        """
        return self._tokenizer.encode_piece(text[: self._n_chars])


def _table(tokenizer: Tokenizer) -> LLTokenizer:
    if not tokenizer.vocabulary.eog_ids:
        raise _refusal("this model has no token that ends an answer")
    table = TokenizerWrapper(_Table(tokenizer))
    return LLTokenizer(table, eos_token=sorted(tokenizer.vocabulary.eog_ids))


def _definition(grammar: Grammar) -> str:
    """`grammar` as llguidance has it. Raises RequestError."""
    match grammar.kind:
        case "json_schema":
            return _of_schema(grammar.text)
        case "lark":
            _check_schemas_within(grammar.text)
            return LLMatcher.grammar_from_lark(grammar.text)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "gbnf":
            try:
                return LLMatcher.grammar_from_lark(gbnf_to_lark(grammar.text))
            except RecursionError:
                raise _refusal("it is nested too deeply") from None
            except Exception as error:  # the converter raises bare ones
                raise _refusal(str(error)) from None


def _of_schema(text: str) -> str:
    match text.strip()[:5]:
        case "true":
            text = "{}"
        case "false":
            raise _refusal(NO_TEXT)
        case start if not start.startswith("{"):
            raise _refusal("a JSON schema is an object or a boolean")
    try:
        _check_patterns(json.loads(text))
        return LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": JSON_WHITE_SPACE})
    except RecursionError:
        raise _refusal("it is nested too deeply") from None
    except ValueError as error:
        raise _refusal(str(error)) from None


def _check_patterns(schema: Any) -> None:
    n = n_conjoined(schema)
    if n > MAX_CONJOINED_PATTERNS:
        raise _refusal(f"a string must match {n} patterns at once, and {MAX_CONJOINED_PATTERNS} are allowed")


def _check_schemas_within(lark: str) -> None:
    """Those behind `%json`; what is no JSON there is llguidance's to refuse."""
    decoder = json.JSONDecoder()
    for start in _SCHEMA_WITHIN.finditer(lark):
        try:
            _check_patterns(decoder.raw_decode(lark, start.end())[0])
        except RecursionError:
            raise _refusal("it is nested too deeply") from None
        except ValueError:
            continue


def _refusal(reason: str) -> RequestError:
    lines = (line.strip() for line in reason.splitlines())
    reason = " ".join(line for line in lines if line and not line.startswith("<"))
    if len(reason) > MAX_REASON_CHARS:
        reason = reason[:MAX_REASON_CHARS] + "…"
    return RequestError(f"The grammar cannot be used: {reason}", param="grammar")
