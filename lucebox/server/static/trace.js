// What a stream says of its tokens and rounds ("tokens" and "rounds" of its chunks), kept small enough to store.

export const ORIGINS = ["plain", "accepted", "corrected", "bonus", "forced"];
const MAX_STORED_ROUNDS = 1500;

/** Tokens with their origins, rounds with their drafts, and who computed when, of one answer. */
export class Trace {
  constructor(stored = null) {
    this.raw = ""; // the text of all tokens, markup of reasoning and tools included
    this.starts = []; // where in `raw` each token begins
    this.origins = []; // its place in ORIGINS
    this.drafterOf = []; // its place in `drafters`, or -1
    this.drafters = [];
    this.rounds = []; // {nTokens, nDrafted, depth, nAccepted, drafter, timeMs, draftMs, verifyMs}
    this.work = []; // {lane, startMs, endMs, isAhead}, since the first of them
    this.zeroMs = null;
    this.timings = null;
    this.nCached = 0; // tokens of the prompt that were known from other requests
    if (stored) this.#restore(stored);
  }

  get nTokens() {
    return this.origins.length;
  }

  /** Takes what a chunk says. */
  add(chunk) {
    for (const token of chunk.tokens ?? []) {
      this.starts.push(this.raw.length);
      this.raw += token.text;
      this.origins.push(Math.max(ORIGINS.indexOf(token.origin), 0));
      this.drafterOf.push(token.drafter ? this.#drafter(token.drafter) : -1);
    }
    for (const round of chunk.rounds ?? []) this.#addRound(round);
    if (chunk.timings) this.timings = chunk.timings;
    this.nCached = chunk.usage?.prompt_tokens_details?.cached_tokens ?? this.nCached;
  }

  /** Tokens per second of decoding, behind the first round; by the engine's own clock. 0: not known yet. */
  get tokensPerSecond() {
    if (this.timings) return this.timings.predicted_per_second;
    const first = this.rounds[0];
    const last = this.rounds[this.rounds.length - 1];
    if (!first || last.timeMs <= first.timeMs) return 0;
    const n = this.rounds.reduce((sum, round) => sum + round.nTokens, 0) - first.nTokens;
    return (1000 * n) / (last.timeMs - first.timeMs);
  }

  get nDrafted() {
    return this.rounds.reduce((sum, round) => sum + round.nDrafted, 0);
  }

  get nAccepted() {
    return this.rounds.reduce((sum, round) => sum + round.nAccepted, 0);
  }

  /** How many tokens came from where, in the order of ORIGINS. */
  counts() {
    const counts = ORIGINS.map(() => 0);
    for (const origin of this.origins) counts[origin] += 1;
    return counts;
  }

  /** Per depth of drafts: [drafts that were so deep, those of which that token was kept]. */
  positions() {
    const drafted = [];
    const accepted = [];
    for (const round of this.rounds) {
      for (let i = 0; i < round.depth; i += 1) {
        drafted[i] = (drafted[i] ?? 0) + 1;
        accepted[i] = (accepted[i] ?? 0) + (i < round.nAccepted ? 1 : 0);
      }
    }
    return drafted.map((n, i) => [n, accepted[i]]);
  }

  /** What to store: at most MAX_STORED_ROUNDS rounds, and their times to a tenth of a millisecond. */
  toJSON() {
    const tenth = (ms) => Math.round(10 * ms) / 10;
    const rounds = this.rounds.slice(-MAX_STORED_ROUNDS);
    return {
      raw: this.raw,
      lengths: this.starts.map((start, i) => (this.starts[i + 1] ?? this.raw.length) - start),
      origins: this.origins.join(""),
      drafterOf: this.drafterOf,
      drafters: this.drafters,
      rounds: rounds.map((r) => [r.nTokens, r.nDrafted, r.depth, r.nAccepted, r.drafter, tenth(r.timeMs), tenth(r.draftMs), tenth(r.verifyMs)]),
      work: this.work.slice(-2 * MAX_STORED_ROUNDS).map((w) => [w.lane, tenth(w.startMs), tenth(w.endMs), w.isAhead ? 1 : 0]),
      timings: this.timings,
      nCached: this.nCached,
    };
  }

  #restore(stored) {
    this.raw = String(stored.raw ?? "");
    let start = 0;
    for (const length of stored.lengths ?? []) {
      this.starts.push(start);
      start += length;
    }
    this.origins = [...String(stored.origins ?? "")].map(Number);
    this.drafterOf = stored.drafterOf ?? [];
    this.drafters = stored.drafters ?? [];
    this.rounds = (stored.rounds ?? []).map(([nTokens, nDrafted, depth, nAccepted, drafter, timeMs, draftMs, verifyMs]) => (
      { nTokens, nDrafted, depth, nAccepted, drafter, timeMs, draftMs, verifyMs }));
    this.work = (stored.work ?? []).map(([lane, startMs, endMs, ahead]) => ({ lane, startMs, endMs, isAhead: ahead === 1 }));
    this.timings = stored.timings ?? null;
    this.nCached = Number(stored.nCached) || 0;
    this.zeroMs = 0;
  }

  #addRound(round) {
    const begins = [round.time_ms, ...round.work.map((span) => span.start_ms)];
    this.zeroMs ??= Math.min(...begins);
    this.rounds.push({
      nTokens: round.n_tokens,
      nDrafted: round.n_drafted,
      depth: round.depth,
      nAccepted: round.n_accepted,
      drafter: round.drafter,
      timeMs: round.time_ms - this.zeroMs,
      draftMs: round.draft_ms,
      verifyMs: round.verify_ms,
    });
    for (const span of round.work) {
      this.work.push({
        lane: span.party, startMs: span.start_ms - this.zeroMs, endMs: span.end_ms - this.zeroMs, isAhead: span.is_ahead,
      });
    }
  }

  #drafter(name) {
    const known = this.drafters.indexOf(name);
    return known >= 0 ? known : this.drafters.push(name) - 1;
  }
}

/** Finds the tokens behind shown text: `raw` without the marks of reasoning and tools, in the same order. */
export class Alignment {
  constructor(trace) {
    this.trace = trace;
    this.cursor = 0; // in trace.raw: how much of it is behind us
  }

  /** Where in `raw` the next `text` begins; -1 if it is not there. */
  find(text) {
    const at = this.trace.raw.indexOf(text, this.cursor);
    if (at < 0) return -1;
    this.cursor = at + text.length;
    return at;
  }
}

/** Text that grew in pieces, each with its place in the raw text of a trace. */
export class MarkedText {
  constructor(trace, stored = null) {
    this.trace = trace;
    this.text = stored?.text ?? "";
    this.places = stored?.places ?? []; // [offset in text, offset in raw or -1], ascending
  }

  append(text, at) {
    const last = this.places[this.places.length - 1];
    const follows = last && last[1] >= 0 && at >= 0 && last[1] + (this.text.length - last[0]) === at;
    if (!follows) this.places.push([this.text.length, at]);
    this.text += text;
  }

  /** Splits [start, end) of the text at the borders of tokens: calls `emit(start, end, token)`, token -1: not known. */
  pieces(start, end, emit) {
    let place = this.#lastAtMost(this.places, start, (p) => p[0]);
    let at = start;
    while (at < end) {
      const next = this.places[place + 1];
      const limit = next ? Math.min(end, next[0]) : end;
      const origin = place >= 0 ? this.places[place][1] : -1;
      if (origin < 0) {
        emit(at, limit, -1);
      } else {
        this.#tokens(at, limit, origin - this.places[place][0], emit);
      }
      at = limit;
      place += 1;
    }
  }

  #tokens(start, end, shift, emit) {
    const { starts, raw } = this.trace;
    let token = this.#lastAtMost(starts, start + shift, (s) => s);
    let at = start;
    while (at < end) {
      const limit = Math.min(end, (starts[token + 1] ?? raw.length) - shift);
      if (limit > at) emit(at, limit, token);
      at = Math.max(limit, at);
      if (token + 1 >= starts.length && limit < end) {
        emit(at, end, -1);
        return;
      }
      token += 1;
    }
  }

  #lastAtMost(list, value, of) {
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (of(list[middle]) <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  toJSON() {
    return { text: this.text, places: this.places };
  }
}
