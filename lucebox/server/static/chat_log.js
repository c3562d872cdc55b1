// The open conversation: views of its messages, editing in place, and scrolling along.

import { byId, element } from "./dom.js";
import { MessageView } from "./message_view.js";

const NEAR_PX = 60;
const INTERVAL_MS = 60;
const DRAWING_SHARE = 0.1; // of the time: the models need the cores
const EXAMPLES = [
  "Write a Python function that merges two sorted lists, with a docstring.",
  "Explain what a hash map is, in three short paragraphs.",
  "List the numbers from 1 to 30, one per line.",
];

/** `onAct(action, message, button)` hears of the buttons in messages; for "edited", `button` is the new text. */
export class ChatLog {
  constructor(root, onAct) {
    this.root = root;
    this.onAct = onAct;
    this.views = [];
    this.follows = true;
    this.timer = null;
    this.lastMs = 0;
    this.drawMs = 0;
    root.addEventListener("scroll", () => this.#scrolled());
    root.addEventListener("click", (event) => this.#clicked(event));
    byId("jump").addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.follows && this.toEnd()).observe(root);
  }

  /** Shows `conversation`; `running` is the answer that still grows. */
  show(conversation, running = null) {
    const old = this.views;
    this.running = running;
    this.views = conversation.messages.map((message) => old.find((view) => view.message === message) ?? new MessageView(message));
    const system = conversation.system ? [element("p", { className: "system-note" }, conversation.system)] : [];
    const shown = conversation.messages.length ? this.views.map((view) => view.root) : [empty()];
    this.root.replaceChildren(...system, ...shown);
    if (running) this.#view(running)?.update({ isRunning: true });
    this.toEnd();
  }

  /** Draws the answer again, soon. */
  grew(answer) {
    if (this.timer !== null) return;
    const interval = Math.max(INTERVAL_MS, this.drawMs / DRAWING_SHARE);
    this.timer = setTimeout(() => {
      this.timer = null;
      this.lastMs = performance.now();
      this.#draw(answer, true);
      this.drawMs = performance.now() - this.lastMs;
    }, Math.max(this.lastMs + interval - performance.now(), 0));
  }

  ended(answer) {
    clearTimeout(this.timer);
    this.timer = null;
    this.running = null;
    this.#draw(answer, false);
  }

  toEnd() {
    this.follows = true;
    this.root.scrollTop = this.root.scrollHeight;
    byId("jump").hidden = true;
  }

  #draw(answer, isRunning) {
    this.#view(answer)?.update({ isRunning });
    if (this.follows) this.toEnd();
    else byId("jump").hidden = false;
  }

  #view(message) {
    return this.views.find((view) => view.message === message) ?? null;
  }

  #scrolled() {
    const left = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight;
    this.follows = left < NEAR_PX;
    if (this.follows) byId("jump").hidden = true;
  }

  #clicked(event) {
    const button = event.target.closest("button[data-action]");
    if (!button) return;
    const view = this.views.find((candidate) => candidate.root.contains(button));
    if (button.dataset.action === "edit") this.#edit(view);
    else this.onAct(button.dataset.action, view?.message ?? null, button);
  }

  #edit(view) {
    if (this.running) return;
    const field = element("textarea", { value: view.message.content, rows: Math.min(view.message.content.split("\n").length + 1, 12) });
    field.setAttribute("aria-label", "Edit the message");
    const send = element("button", { type: "submit", className: "primary" }, "Send again");
    const note = element("p", { className: "fine" }, "What was said after this message is dropped.");
    const cancel = element("button", { type: "button" }, "Cancel");
    const form = element("form", { className: "edit" }, field, element("div", { className: "edit-buttons" }, send, cancel), note);
    const hidden = [...view.root.children].slice(1);
    const close = () => {
      form.remove();
      for (const child of hidden) child.hidden = false;
    };
    for (const child of hidden) child.hidden = true;
    view.root.append(form);
    cancel.addEventListener("click", close);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) this.onAct("edited", view.message, field.value.trim());
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    field.focus();
  }
}

function empty() {
  const examples = EXAMPLES.map((text) => element("button", { type: "button", className: "outline", dataset: { action: "example" } }, text));
  return element("div", { className: "empty" },
    element("h2", {}, "Ask the model something"),
    element("p", {}, "Each token of the answer shows where it came from: guessed ahead and kept, or computed by the target itself."),
    element("div", { className: "examples" }, ...examples));
}
