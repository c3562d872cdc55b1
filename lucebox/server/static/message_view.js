// One message on the page. Answers are drawn again while they grow, but only the blocks that changed.

import { blocks, render } from "./markdown.js";
import { element } from "./dom.js";
import { ORIGINS } from "./trace.js";

const EXPLAINED = {
  plain: "plain: the target's own, without a guess",
  accepted: "accepted guess",
  corrected: "corrected: the target's own, in place of a rejected guess",
  bonus: "bonus: the target's own, behind a draft that was kept to its end",
  forced: "forced: the only token that the grammar left",
};
const FINISHED = { stop: "", length: "cut at the token limit", stopped: "stopped", tool_calls: "asks for a tool" };

/** The view of a message; `update()` after the message changed. */
export class MessageView {
  constructor(message) {
    this.message = message;
    this.root = element("article", { className: "message", dataset: { role: message.role } });
    this.root.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
    if (message.role === "user") this.#user();
    else this.#answer();
  }

  update({ isRunning = false } = {}) {
    const { message } = this;
    if (message.role === "user") return;
    this.root.toggleAttribute("aria-busy", isRunning);
    this.#reasoning(isRunning);
    this.content.update(message.content);
    this.#calls();
    const isEmpty = isRunning && !message.content.text && !message.reasoning.text && !message.calls.length;
    this.waiting.hidden = !isEmpty;
    this.foot.hidden = isRunning;
    this.meta.textContent = metaOf(message);
    this.#error();
  }

  #user() {
    const button = (action, text) => element("button", { type: "button", dataset: { action } }, text);
    this.root.append(
      element("div", { className: "message-head" }, "You"),
      element("div", { className: "body" }, this.message.content),
      element("div", { className: "message-foot" }, button("edit", "Edit"), button("copy", "Copy")),
    );
  }

  #answer() {
    const button = (action, text) => element("button", { type: "button", dataset: { action } }, text);
    this.waiting = element("p", { className: "waiting", hidden: true }, "Reading the prompt…");
    this.content = new MarkdownView();
    this.callsRoot = element("div");
    this.errorRoot = element("div", { className: "error", hidden: true });
    this.meta = element("span", { className: "meta" });
    this.foot = element("div", { className: "message-foot" },
      this.meta, button("copy", "Copy"), button("regenerate", "Regenerate"), button("figures", "Figures"));
    this.root.append(element("div", { className: "message-head" }, "Answer"), this.waiting, this.content.root, this.callsRoot, this.errorRoot, this.foot);
    this.update();
  }

  #reasoning(isRunning) {
    const { reasoning, content } = this.message;
    if (!reasoning.text) return;
    if (!this.reasoning) {
      this.reasoning = new MarkdownView();
      this.summary = element("summary");
      this.content.root.before(element("details", { className: "reasoning" }, this.summary, this.reasoning.root));
    }
    this.summary.textContent = isRunning && !content.text ? "Thinking…" : "Thoughts";
    this.reasoning.update(reasoning);
  }

  #calls() {
    const { calls } = this.message;
    while (this.callsRoot.children.length < calls.length) {
      this.callsRoot.append(element("div", { className: "call" }, element("div", { className: "call-head" }), element("pre")));
    }
    calls.forEach((call, i) => {
      const [head, body] = this.callsRoot.children[i].children;
      head.textContent = `Tool call: ${call.name}`;
      body.textContent = call.arguments;
    });
  }

  #error() {
    const { error } = this.message;
    this.errorRoot.hidden = !error;
    if (!error || this.errorRoot.dataset.shown === error.message) return;
    this.errorRoot.dataset.shown = error.message;
    const retry = element("button", { type: "button", className: "outline", dataset: { action: "regenerate" } }, "Try again");
    this.errorRoot.setAttribute("role", "alert");
    this.errorRoot.replaceChildren(element("p", {}, element("strong", {}, error.message), " ", error.remedy ?? ""), retry);
  }
}

function metaOf(message) {
  const { trace } = message;
  const parts = [];
  if (trace.nTokens) parts.push(`${trace.nTokens} tokens`);
  if (trace.tokensPerSecond) parts.push(`${trace.tokensPerSecond.toFixed(1)} tokens/s`);
  if (trace.nDrafted) parts.push(`${trace.nAccepted} of ${trace.nDrafted} guesses kept`);
  const end = FINISHED[message.finishReason];
  if (end) parts.push(end);
  return parts.join(" · ");
}

/** Markdown of a MarkedText that grows. */
class MarkdownView {
  constructor() {
    this.root = element("div", { className: "body" });
    this.keys = [];
    this.nTokens = -1;
  }

  update(marked) {
    const { text } = marked;
    const found = blocks(text);
    const isLast = (i) => i >= found.length - 1;
    found.forEach((block, i) => {
      // The last block may get the origins of tokens later than its text.
      const key = `${block.kind} ${block.start} ${block.end} ${isLast(i) ? marked.places.length : ""} ${text.slice(block.start, block.end)}`;
      if (this.keys[i] === key) return;
      const node = render(block, text, (parent, start, end) => leaf(parent, marked, start, end));
      if (this.root.children[i]) this.root.children[i].replaceWith(node);
      else this.root.append(node);
      this.keys[i] = key;
    });
    while (this.root.children.length > found.length) this.root.lastElementChild.remove();
    this.keys.length = found.length;
  }
}

function leaf(parent, marked, start, end) {
  const { trace, text } = marked;
  marked.pieces(start, end, (from, to, token) => {
    if (token < 0) {
      parent.append(text.slice(from, to));
      return;
    }
    const origin = ORIGINS[trace.origins[token]];
    const drafter = trace.drafters[trace.drafterOf[token]];
    const title = drafter ? `${EXPLAINED[origin]} by ${drafter}` : EXPLAINED[origin];
    parent.append(element("span", { className: "token", title, dataset: { origin } }, text.slice(from, to)));
  });
}
