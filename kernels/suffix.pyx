# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A suffix automaton of token ids that counts and remembers. Twin: lucebox/drafters/reference.py.

States and edges lie in two growing arrays. A state's edges form a list, for choosing among them; an open hash table of
(state, token) finds one of them. Both cost O(1) amortised for each token appended.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

import numpy as np

cdef enum:
    NONE = -1
    ROOT = 0
    MAX_COUNTED = 64  # states on one way to the root; only text like `aaaa…` has more, and counts less of it
    FIRST_CAPACITY = 64

cdef struct State:
    int32_t length  # of its longest string
    int32_t link    # the state of the longest suffix that occurs elsewhere, too
    int32_t edges   # the newest of its edges
    int32_t count   # occurrences of its strings
    int32_t end     # where the latest of them ends

cdef struct Edge:
    int32_t source
    int32_t token
    int32_t target
    int32_t next


# At most two states and three edges for each token, in arrays that are at least half full.
MAX_BYTES_PER_TOKEN = 2 * (2 * sizeof(State) + 3 * (sizeof(Edge) + 2 * sizeof(int32_t)))


cdef uint32_t hashed(int32_t state, int32_t token) noexcept nogil:
    cdef uint64_t key = (<uint64_t> <uint32_t> state << 32) | <uint32_t> token
    key *= <uint64_t> 0x9E3779B97F4A7C15
    return <uint32_t> (key >> 32)


cdef ptrdiff_t grown(ptrdiff_t capacity, ptrdiff_t needed) noexcept nogil:
    while capacity < needed:
        capacity *= 2
    return capacity


cdef ptrdiff_t held(ptrdiff_t n_states, ptrdiff_t n_edges) noexcept nogil:
    """Bytes of arrays of these capacities, and of the table, which has two slots for each edge."""
    return sizeof(State) * n_states + (sizeof(Edge) + 2 * sizeof(int32_t)) * n_edges


cdef class Automaton:
    """All substrings of a text. A match is (state, length): a string of the text, longest at its end."""

    cdef State *_states
    cdef Edge *_edges
    cdef int32_t *_table  # edges by hash; NONE where free
    cdef ptrdiff_t _state_capacity, _edge_capacity, _n_slots
    cdef ptrdiff_t _n_states, _n_edges, _n_tokens
    cdef int32_t _last

    def __cinit__(self):
        self._n_slots = 2 * FIRST_CAPACITY
        self._state_capacity = self._edge_capacity = FIRST_CAPACITY
        self._states = <State *> malloc(sizeof(State) * self._state_capacity)
        self._edges = <Edge *> malloc(sizeof(Edge) * self._edge_capacity)
        self._table = <int32_t *> malloc(sizeof(int32_t) * self._n_slots)
        if self._states == NULL or self._edges == NULL or self._table == NULL:
            raise MemoryError()
        memset(self._table, 0xFF, sizeof(int32_t) * self._n_slots)
        self._states[ROOT] = State(0, NONE, NONE, 0, 0)
        self._n_states = 1

    def __dealloc__(self):
        free(self._states)
        free(self._edges)
        free(self._table)

    @property
    def n_tokens(self):
        """Tokens appended."""
        return self._n_tokens

    @property
    def n_bytes(self):
        """Memory held."""
        return held(self._state_capacity, self._edge_capacity)

    def n_bytes_after(self, ptrdiff_t n_tokens):
        """Memory held once `n_tokens` more are appended, at most."""
        return held(
            grown(self._state_capacity, self._n_states + 2 * n_tokens),
            grown(self._edge_capacity, self._n_edges + 3 * n_tokens),
        )

    def extend(self, const int32_t[::1] tokens not None):
        """Appends `tokens`. A negative one is a break: it is counted, and never proposed."""
        cdef ptrdiff_t i
        for i in range(tokens.shape[0]):
            self._append(tokens[i])

    def longest(self):
        """The match of the longest end of the text that occurs earlier, too; (0, 0) if none does."""
        if self._last == ROOT:
            return ROOT, 0
        cdef int32_t link = self._states[self._last].link
        return link, self._states[link].length

    def follow(self, int32_t state, int32_t length, const int32_t[::1] tokens not None):
        """The match of the longest end of (the match, then `tokens`). It stays valid as the text grows."""
        cdef ptrdiff_t i
        cdef int32_t edge
        while state != ROOT and length <= self._states[self._states[state].link].length:
            state = self._states[state].link  # the state was split since
        for i in range(tokens.shape[0]):
            edge = self._find(state, tokens[i])
            while edge == NONE and state != ROOT:
                state = self._states[state].link
                length = self._states[state].length
                edge = self._find(state, tokens[i])
            if edge == NONE:
                length = 0
            else:
                state = self._edges[edge].target
                length += 1
        return state, length

    def continuation(self, int32_t state, int32_t length, ptrdiff_t n_max, double p_min, double prior):
        """What followed the match most often, the latest among equals, up to `n_max` tokens, and how many of
        them are expected to come again.

        A token seen k times of n behind a match of m tokens comes with probability k / (n + prior / m).
        Ends before the product of these falls below `p_min`.
        """
        tokens = np.empty(max(n_max, 0), np.int32)
        cdef int32_t[::1] out = tokens
        cdef ptrdiff_t n = 0
        cdef double p = 1.0, expected = 0.0
        cdef int64_t total
        cdef int32_t edge, best
        while n < n_max and length > 0:
            edge = self._states[state].edges
            if edge == NONE:  # the end of the text: a shorter end of it occurs earlier
                state = self._states[state].link
                length = self._states[state].length
                continue
            best, total = NONE, 0
            while edge != NONE:
                total += self._states[self._edges[edge].target].count
                if self._edges[edge].token >= 0 and (best == NONE or self._is_better(edge, best)):
                    best = edge
                edge = self._edges[edge].next
            if best == NONE:
                break
            state = self._edges[best].target
            p *= self._states[state].count / (total + prior / length)
            if p < p_min:
                break
            out[n] = self._edges[best].token
            expected += p
            length += 1
            n += 1
        return tokens[:n], expected

    cdef bint _is_better(self, int32_t a, int32_t b) noexcept:
        """Whether edge `a` was taken more often than `b`, or as often and later."""
        cdef State *s = &self._states[self._edges[a].target]
        cdef State *t = &self._states[self._edges[b].target]
        return s.count > t.count or (s.count == t.count and s.end > t.end)

    cdef int _append(self, int32_t token) except -1:
        cdef int32_t state = self._last, split, new, edge
        new = self._new_state(self._states[state].length + 1, ROOT, 0, 0)
        edge = self._find(state, token)
        while edge == NONE:
            self._add_edge(state, token, new)
            state = self._states[state].link
            if state == NONE:
                break
            edge = self._find(state, token)
        if state != NONE:
            split = self._edges[edge].target
            if self._states[split].length != self._states[state].length + 1:
                split = self._split(state, token, split)
            self._states[new].link = split
        self._last = new
        self._n_tokens += 1
        self._count(new)
        return 0

    cdef int32_t _split(self, int32_t state, int32_t token, int32_t whole) except -1:
        """The strings of `whole` that are no longer than `state`'s and `token` get a state of their own."""
        cdef State old = self._states[whole]
        cdef int32_t part = self._new_state(self._states[state].length + 1, old.link, old.count, old.end)
        cdef int32_t edge = old.edges
        while edge != NONE:
            self._add_edge(part, self._edges[edge].token, self._edges[edge].target)
            edge = self._edges[edge].next
        while state != NONE:
            edge = self._find(state, token)
            if edge == NONE or self._edges[edge].target != whole:
                break
            self._edges[edge].target = part
            state = self._states[state].link
        self._states[whole].link = part
        return part

    cdef void _count(self, int32_t state) noexcept:
        """The text ends with the strings of `state` and of the states it links to."""
        cdef int i
        for i in range(MAX_COUNTED):
            if state == ROOT:
                return
            self._states[state].count += 1
            self._states[state].end = <int32_t> self._n_tokens
            state = self._states[state].link

    cdef int32_t _new_state(self, int32_t length, int32_t link, int32_t count, int32_t end) except -1:
        cdef State *larger
        if self._n_states == self._state_capacity:
            larger = <State *> realloc(self._states, sizeof(State) * 2 * self._state_capacity)
            if larger == NULL:
                raise MemoryError()
            self._states = larger
            self._state_capacity *= 2
        self._states[self._n_states] = State(length, link, NONE, count, end)
        self._n_states += 1
        return <int32_t> (self._n_states - 1)

    cdef int _add_edge(self, int32_t source, int32_t token, int32_t target) except -1:
        cdef Edge *larger
        if self._n_edges == self._edge_capacity:
            larger = <Edge *> realloc(self._edges, sizeof(Edge) * 2 * self._edge_capacity)
            if larger == NULL:
                raise MemoryError()
            self._edges = larger
            self._edge_capacity *= 2
            self._rehash(2 * self._n_slots)
        self._edges[self._n_edges] = Edge(source, token, target, self._states[source].edges)
        self._states[source].edges = <int32_t> self._n_edges
        self._enter(<int32_t> self._n_edges)
        self._n_edges += 1
        return 0

    cdef int _rehash(self, ptrdiff_t n_slots) except -1:
        cdef int32_t *table = <int32_t *> malloc(sizeof(int32_t) * n_slots)
        cdef ptrdiff_t i
        if table == NULL:
            raise MemoryError()
        free(self._table)
        self._table, self._n_slots = table, n_slots
        memset(table, 0xFF, sizeof(int32_t) * n_slots)
        for i in range(self._n_edges):
            self._enter(<int32_t> i)
        return 0

    cdef void _enter(self, int32_t edge) noexcept:
        """The table is at most half full, and its size a power of two."""
        cdef ptrdiff_t slot = hashed(self._edges[edge].source, self._edges[edge].token) & (self._n_slots - 1)
        while self._table[slot] != NONE:
            slot = (slot + 1) & (self._n_slots - 1)
        self._table[slot] = edge

    cdef int32_t _find(self, int32_t state, int32_t token) noexcept:
        cdef ptrdiff_t slot = hashed(state, token) & (self._n_slots - 1)
        cdef int32_t edge = self._table[slot]
        while edge != NONE and (self._edges[edge].source != state or self._edges[edge].token != token):
            slot = (slot + 1) & (self._n_slots - 1)
            edge = self._table[slot]
        return edge
