// The panel: speeds and charts of one answer, drawn at most four times a second, as the models need the cores.

import * as charts from "./charts.js";
import { byId, element } from "./dom.js";

const INTERVAL_MS = 250;

export class Insight {
  constructor(which) {
    this.which = which; // of the model: what speeds were measured for
    this.message = null;
    this.isRunning = false;
    this.plain = null; // {perSecond, nTokens} of the last answer that was made without speculation
    this.lastMs = 0;
    this.timer = null;
  }

  /** Shows `message` from now on. `live`: of a comparison under way, its words. */
  show(message, { isRunning = false } = {}) {
    this.message = message;
    this.isRunning = isRunning;
    this.#schedule(isRunning ? INTERVAL_MS : 0);
  }

  /** A speed without speculation that was measured here, for answers that have none of their own. */
  notePlain(trace) {
    if (trace.nTokens >= 8 && trace.tokensPerSecond) {
      this.plain = { perSecond: trace.tokensPerSecond, nTokens: trace.nTokens };
    }
  }

  #schedule(intervalMs) {
    if (this.timer !== null && intervalMs) return;
    clearTimeout(this.timer);
    const wait = Math.max(this.lastMs + intervalMs - performance.now(), 0);
    this.timer = setTimeout(() => {
      this.timer = null;
      this.lastMs = performance.now();
      this.#draw();
    }, intervalMs ? wait : 0);
  }

  #draw() {
    const { message } = this;
    const hasFigures = Boolean(message) && message.trace.nTokens > 0;
    byId("insight-body").hidden = !hasFigures;
    byId("insight-which").textContent = !message ? "Figures of an answer appear here while it is written."
      : !hasFigures ? (this.isRunning ? "Reading the prompt…" : "No figures are kept of this answer.")
      : this.isRunning ? "The answer that is being written." : `An answer of ${message.trace.nTokens} tokens.`;
    if (!hasFigures || document.body.dataset.insight !== "open") return;
    const { trace } = message;
    this.#speeds(message);
    charts.origins(byId("origins"), trace);
    charts.positions(byId("positions"), trace);
    charts.lengths(byId("lengths"), trace);
    charts.lanes(byId("lanes"), trace);
    this.#facts(message);
  }

  #speeds(message) {
    const { trace, compared } = message;
    const isPlain = message.request?.speculative === false;
    const own = trace.tokensPerSecond;
    const without = isPlain ? own : compared?.perSecond ?? this.plain?.perSecond ?? 0;
    byId("speed-with").textContent = isPlain || !own ? "–" : own.toFixed(1);
    byId("speed-without").textContent = without ? without.toFixed(1) : "–";
    byId("speed-note").textContent = note(message, this.plain, isPlain);
    const button = byId("compare");
    button.hidden = isPlain;
    button.disabled = this.isRunning;
    button.textContent = compared?.isRunning ? "Stop the comparison" : "Ask again without speculation";
  }

  #facts(message) {
    const { trace } = message;
    const timings = trace.timings;
    const nDrafted = trace.rounds.filter((round) => round.nDrafted).length;
    const rows = [["Rounds", `${trace.rounds.length}, ${nDrafted} with a draft`]];
    if (trace.nDrafted) {
      rows.push(["Guesses kept", `${trace.nAccepted} of ${trace.nDrafted}, ${Math.round((100 * trace.nAccepted) / trace.nDrafted)}%`]);
      rows.push(["Tokens per drafted round", (1 + trace.nAccepted / nDrafted).toFixed(2)]);
    }
    if (timings) {
      for (const [name, totals] of Object.entries(timings.drafters)) rows.push([`Drafter ${name}`, `${totals.n_accepted} of ${totals.n_drafted} kept`]);
      rows.push(["Prompt", `${timings.prompt_n} tokens, ${timings.prompt_ms.toFixed(0)} ms`]);
      if (trace.nCached) rows.push(["Known from before", `${trace.nCached} tokens more`]);
      rows.push(["Drafting", `${timings.draft_ms.toFixed(0)} ms`], ["Verifying", `${timings.verify_ms.toFixed(0)} ms`]);
    }
    const facts = rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    byId("facts").replaceChildren(...facts);
  }
}

/** What the two figures are, and what they are not. */
function note({ trace, compared }, plain, isPlain) {
  if (isPlain) return "This answer was made without speculation.";
  if (compared?.isRunning) return `Asking again without speculation: ${compared.nTokens} tokens so far.`;
  if (compared?.error) return compared.error;
  if (compared) {
    const ratio = trace.tokensPerSecond / compared.perSecond;
    const text = compared.isSame ? "the same text" : compared.isGreedy ? "a text that differs, as near-ties may" : "another text, drawn anew";
    return `${ratio.toFixed(2)}× the speed. Measured on the same prompt, over ${compared.nTokens} tokens: ${text}.`;
  }
  if (plain) return `Without: measured on another prompt, over ${plain.nTokens} tokens.`;
  return "Without: not measured yet.";
}
