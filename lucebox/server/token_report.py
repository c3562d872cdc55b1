"""Where the tokens of a streamed answer came from, for requests with `stream_options.include_tokens`.

Each chunk then has what is new of its choice: `tokens`, in the order of generation, and the `rounds` of the
engine that they came in. A token's text may be empty (a control token, or a character that goes on in the
next one), and may come ahead of the text of the choice, which waits for what could become a stop string or
the mark of a tool call.
"""

from __future__ import annotations

import codecs

import msgspec
from msgspec.structs import asdict

from lucebox.core import Origin
from lucebox.engine.timings import RoundTrace
from lucebox.server.generation import Piece
from lucebox.server.responses import ChatChunkChoice, Completion
from lucebox.text.output import TokenBytes


class TokenBody(msgspec.Struct, frozen=True):
    """`drafter` proposed an accepted token; else null."""

    text: str
    origin: Origin
    drafter: str | None


class WorkBody(msgspec.Struct, frozen=True):
    """`party` ("target" or "draft") computed so long; times are of the engine's monotonic clock."""

    party: str
    start_ms: float
    end_ms: float
    is_ahead: bool


class RoundBody(msgspec.Struct, frozen=True):
    """One round: `n_drafted` tokens by `drafter` ("" without a draft), the longest path of them `depth`,
    `n_accepted` of it kept, and `n_tokens` emitted in all. `work` may be that of other requests, too."""

    index: int
    n_tokens: int
    drafter: str
    n_drafted: int
    depth: int
    n_accepted: int
    draft_ms: float
    verify_ms: float
    time_ms: float
    work: list[WorkBody]

    @classmethod
    def of(cls, trace: RoundTrace) -> RoundBody:
        drafted = trace.drafted
        work = [WorkBody(w.party, round(w.start_ms, 3), round(w.end_ms, 3), w.is_ahead) for w in trace.work]
        return cls(
            index=trace.index,
            n_tokens=trace.n_tokens,
            drafter=drafted.drafter if drafted else "",
            n_drafted=drafted.n_drafted if drafted else 0,
            depth=drafted.depth if drafted else 0,
            n_accepted=drafted.n_accepted if drafted else 0,
            draft_ms=round(trace.draft_ms, 3),
            verify_ms=round(trace.verify_ms, 3),
            time_ms=round(trace.time_ms, 3),
            work=work,
        )


class ReportedChunk(Completion[ChatChunkChoice], frozen=True, kw_only=True):
    tokens: list[TokenBody]
    rounds: list[RoundBody]


class TokenReport:
    """Words the tokens of pieces. One object per request."""

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._vocabulary = vocabulary
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def added_to(self, chunk: Completion[ChatChunkChoice], piece: Piece) -> ReportedChunk:
        """`chunk` with what `piece` says of its tokens."""
        tokens, rounds = self._tokens(piece), [RoundBody.of(trace) for trace in piece.traces]
        return ReportedChunk(**asdict(chunk), tokens=tokens, rounds=rounds)

    def _tokens(self, piece: Piece) -> list[TokenBody]:
        if piece.index not in self._decoders:
            self._decoders[piece.index] = codecs.getincrementaldecoder("utf-8")("replace")
        decode = self._decoders[piece.index].decode
        return [
            TokenBody(decode(self._vocabulary.token_bytes(source.token)), source.origin, source.drafter)
            for source in piece.tokens
        ]
