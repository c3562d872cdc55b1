"""Token recycling: guesses along what the target itself held likeliest behind each token, the last time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lucebox.core import Draft, Float32Array, Int32Array
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest, Observation
from lucebox.errors import ConfigError
from lucebox.sampling.kernels import sampling

MAX_ROWS_LEARNED = 16  # of one round; each costs a pass over the vocabulary


@dataclass(slots=True)
class _Node:
    """A token of a draft under way, the row it lies in, and the chance that the draft gets so far."""

    token: int
    row: int
    p: float


class RecycleDrafter(Drafter):
    """Keeps the `k` likeliest successors of every token, as the target's logits last had them, rejected rows
    included, and guesses along them: the likeliest ones as a chain, or a tree of the shape asked for.

    Token Recycling (Luo et al. 2024, arXiv 2408.08696). Paths whose chance falls below `p_min` end. Shared by
    all sequences; memory is 8 bytes for each token of the vocabulary and successor, taken as tokens are seen.
    """

    def __init__(self, context: DrafterContext, *, k: int = 8, p_min: float = 0.2) -> None:
        super().__init__(context)
        if not 1 <= k <= 64:
            raise ConfigError(f"drafter recycle: k must be from 1 to 64, not {k}")
        if not 0.0 <= p_min <= 1.0:
            raise ConfigError(f"drafter recycle: p_min must be between 0 and 1, not {p_min:g}")
        self._k = min(k, context.n_vocab)
        self._p_min = p_min
        self._successors: Int32Array
        self._chances: Float32Array
        self.forget()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def observe(self, observation: Observation) -> None:
        draft, accepted = observation.draft, [i + 1 for i in observation.verdict.path]
        rows = dict.fromkeys([0, *accepted, *range(len(draft) + 1)])
        for row in list(rows)[: max(MAX_ROWS_LEARNED, 1 + len(accepted))]:
            token = observation.tokens[observation.n_prefix - 1] if row == 0 else int(draft.tokens[row - 1])
            ids, probs = sampling.filtered(observation.logits[row], 1.0, 0.0, self._k, 1.0)
            order = np.argsort(-probs, kind="stable")
            self._successors[token, : len(ids)] = ids[order]
            self._chances[token, : len(ids)] = probs[order]
            self._chances[token, len(ids) :] = 0.0

    def forget(self) -> None:
        shape = self.context.n_vocab, self._k
        # Zeros cost nothing before they are written; a chance of zero marks what is not known.
        self._successors = np.zeros(shape, np.int32)
        self._chances = np.zeros(shape, np.float32)

    def release(self, sequence: int) -> None:
        pass  # nothing is kept of a sequence

    def _draft(self, request: DraftRequest) -> Draft:
        """Level by level, the likeliest paths first."""
        nodes: list[_Node] = []
        parents: list[int] = []
        level = [_Node(request.prefix[-1], 0, 1.0)]
        depth = 0
        while level and len(nodes) < request.n_max:
            width = request.shape[depth] if depth < len(request.shape) else 1
            candidates = [(node, child) for node in level for child in self._children(node, width)]
            candidates.sort(key=lambda pair: -pair[1].p)
            level = []
            for node, child in candidates[: request.n_max - len(nodes)]:
                parents.append(node.row)
                nodes.append(child)
                child.row = len(nodes)
                if child.token not in request.stop_tokens:
                    level.append(child)
            depth += 1
        tokens = np.array([node.token for node in nodes], np.int32)
        return Draft(tokens, np.array(parents, np.int32), [None] * len(nodes))

    def _children(self, node: _Node, width: int) -> list[_Node]:
        """Up to `width` successors of a node."""
        chances = node.p * self._chances[node.token, :width]
        tokens = self._successors[node.token, :width]
        pairs = zip(tokens.tolist(), chances.tolist(), strict=True)
        return [_Node(token, 0, p) for token, p in pairs if p > 0.0 and p >= self._p_min]


Plugin = RecycleDrafter
