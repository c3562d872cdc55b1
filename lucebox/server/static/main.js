// The page: conversations on the left, the chat, and what speculation does on the right.

import { get, setApiKey } from "./api.js";
import { apiMessages, explained, stream } from "./answering.js";
import { ChatLog } from "./chat_log.js";
import { announce, byId, copyText, element } from "./dom.js";
import { confirmed, openDialog, setUpDialogs } from "./dialogs.js";
import { Insight } from "./insight.js";
import * as keyboard from "./keyboard.js";
import { ServerState } from "./server_state.js";
import * as settings from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { newAnswer, newConversation, Store, titleOf } from "./store.js";
import { setUpAppearance } from "./appearance.js";

const SAVE_MS = 1000;
const COMPARED_TOKENS = 128;

class Page {
  constructor() {
    this.store = new Store();
    this.settings = settings.load();
    this.insight = new Insight();
    this.log = new ChatLog(byId("log"), (action, message, button) => this.act(action, message, button));
    this.sidebar = new Sidebar(this.store, {
      open: (conversation) => this.open(conversation),
      remove: (conversation) => this.remove(conversation),
      rename: (conversation) => this.rename(conversation),
      begin: () => this.begin(),
    });
    this.running = null; // {answer, conversation, abort}
    this.comparing = null;
    this.savedMs = 0;
    this.conversation = this.store.sorted()[0] ?? this.store.add(newConversation());
    this.server = new ServerState((state) => this.serverChanged(state));
  }

  start() {
    setUpAppearance(() => this.showInsight());
    setUpDialogs({
      openSettings: () => this.openSettings(),
      saveSettings: (chosen, system) => this.saveSettings(chosen, system),
      useKey: (key) => this.useKey(key),
    });
    keyboard.setUp(this);
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("compare").addEventListener("click", () => this.compare());
    const text = byId("text");
    text.addEventListener("input", () => this.fitComposer());
    window.addEventListener("pagehide", () => this.running && this.store.save(this.running.conversation));
    window.addEventListener("storage", (event) => this.otherTabWrote(event.key));
    this.open(this.conversation, { focus: false });
    this.fitComposer();
    this.server.check();
  }

  get lastAnswer() {
    return this.conversation.messages.findLast((message) => message.role === "assistant") ?? null;
  }

  // Conversations

  open(conversation, { focus = true } = {}) {
    this.conversation = conversation;
    this.sidebar.show(conversation);
    this.log.show(conversation, this.running?.answer ?? null);
    this.showInsight();
    this.showRunning();
    document.title = conversation.messages.length ? `${titleOf(conversation)} – Lucebox` : "Lucebox";
    if (focus) byId("text").focus();
  }

  begin() {
    const isEmpty = !this.conversation.messages.length;
    this.open(isEmpty ? this.conversation : this.store.add(newConversation()));
  }

  async remove(conversation) {
    if (conversation.messages.length && !await confirmed(`“${titleOf(conversation)}” is deleted from this browser for good.`)) return;
    if (this.running?.conversation === conversation) this.stop();
    this.store.remove(conversation);
    if (this.conversation === conversation) this.open(this.store.sorted()[0] ?? this.store.add(newConversation()));
    else this.sidebar.show(this.conversation);
    announce("Conversation deleted.");
  }

  async rename(conversation) {
    byId("rename-text").value = titleOf(conversation);
    if (await openDialog("rename") !== "yes") return;
    conversation.title = byId("rename-text").value.trim();
    this.save(conversation);
    this.open(conversation);
  }

  otherTabWrote(key) {
    if (this.running && key === this.store.prefix + this.running.conversation.id) return;
    const id = this.store.takeOver(key);
    if (id === this.conversation.id) this.open(this.store.find(id) ?? this.store.add(newConversation()), { focus: false });
    else if (id) this.sidebar.show(this.conversation);
  }

  save(conversation) {
    if (!this.store.save(conversation)) announce("This browser has no room left: delete conversations, or export them first.");
    byId("banner-storage").hidden = !this.store.lacksRoom;
  }

  // Messages

  send() {
    const field = byId("text");
    const content = field.value.trim();
    if (!content || this.running) return;
    field.value = "";
    this.fitComposer();
    this.conversation.messages.push({ role: "user", content });
    this.log.show(this.conversation);
    this.answer();
  }

  act(action, message, button) {
    switch (action) {
      case "copy":
        return this.copied(button, message.role === "user" ? message.content : message.content.text);
      case "copy-code":
        return this.copied(button, button.closest(".code").querySelector("pre").textContent);
      case "regenerate":
        return this.regenerate(message);
      case "figures":
        document.body.dataset.insight = "open";
        byId("toggle-insight").setAttribute("aria-expanded", "true");
        return this.insight.show(message, { isRunning: this.running?.answer === message });
      case "edited":
        return this.edited(message, button);
      case "example":
        byId("text").value = button.textContent;
        return this.send();
      default:
        throw new Error(`no action ${action}`);
    }
  }

  async copied(button, text) {
    await copyText(text);
    const before = button.textContent;
    button.textContent = "Copied";
    announce("Copied.");
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  regenerate(message = this.lastAnswer) {
    if (this.running || !message) return;
    const at = this.conversation.messages.indexOf(message);
    this.conversation.messages.length = at;
    this.answer();
  }

  edited(message, content) {
    if (this.running) return;
    const at = this.conversation.messages.indexOf(message);
    this.conversation.messages.length = at;
    this.conversation.messages.push({ role: "user", content });
    this.answer();
  }

  async answer() {
    const { conversation } = this;
    const messages = apiMessages(conversation);
    const answer = newAnswer();
    answer.request = settings.fields(this.settings);
    conversation.messages.push(answer);
    conversation.updated = Date.now();
    const running = { answer, conversation, abort: new AbortController() };
    this.comparing?.abort();
    this.running = running;
    this.open(conversation, { focus: false });
    this.log.toEnd();
    announce("Answering.");
    this.save(conversation);
    try {
      await stream(answer, messages, answer.request, running.abort.signal, () => this.grew(running));
    } catch (error) {
      this.failed(answer, error);
    }
    answer.finishReason ??= "stopped";
    this.running = null;
    conversation.updated = Date.now();
    if (answer.request.speculative === false) this.insight.notePlain(answer.trace);
    this.save(conversation);
    this.ended(running);
  }

  grew(running) {
    if (performance.now() - this.savedMs > SAVE_MS) {
      this.savedMs = performance.now();
      this.store.save(running.conversation);
    }
    if (running.conversation !== this.conversation) return;
    this.log.grew(running.answer);
    if (this.insight.message === running.answer) this.insight.show(running.answer, { isRunning: true });
  }

  ended({ conversation, answer }) {
    if (conversation === this.conversation) {
      this.log.ended(answer);
      if (this.insight.message === answer) this.insight.show(answer);
    }
    this.showRunning();
    this.sidebar.show(this.conversation);
    const speed = answer.trace.tokensPerSecond;
    if (answer.error) announce(`The answer failed: ${answer.error.message}`);
    else announce(`${answer.finishReason === "stopped" ? "Stopped" : "Answered"}: ${answer.trace.nTokens} tokens${speed ? `, ${speed.toFixed(0)} per second` : ""}.`);
  }

  failed(answer, error) {
    if (error.name === "AbortError") {
      answer.finishReason = "stopped";
      return;
    }
    answer.error = explained(error);
    if (error.status === 401) this.askForKey();
    if (error.status === 0 || error.status === 503) this.server.check();
  }

  stop() {
    this.running?.abort.abort();
  }

  // Speculation

  /** The same request once more, decoded plainly: what it is measured against, and whether it says the same. */
  async compare() {
    const answer = this.insight.message;
    if (this.comparing) {
      this.comparing.abort();
      return;
    }
    const at = this.conversation.messages.indexOf(answer);
    if (!answer || at < 0 || this.running) return;
    const { conversation } = this;
    const plain = newAnswer();
    const abort = new AbortController();
    this.comparing = abort;
    answer.compared = { isRunning: true, nTokens: 0, perSecond: 0 };
    const limit = Math.min(answer.trace.nTokens, COMPARED_TOKENS);
    const fields = { ...answer.request, speculative: false, max_tokens: Math.max(limit, 1) };
    announce("Asking again without speculation.");
    try {
      await stream(plain, apiMessages(conversation, at), fields, abort.signal, () => {
        Object.assign(answer.compared, { nTokens: plain.trace.nTokens, perSecond: plain.trace.tokensPerSecond });
        this.insight.show(this.insight.message);
      });
      answer.compared = comparison(answer, plain);
      this.insight.notePlain(plain.trace);
      announce(`Without speculation: ${plain.trace.tokensPerSecond.toFixed(1)} tokens per second.`);
    } catch (error) {
      answer.compared = error.name === "AbortError" ? null : { error: explained(error).message };
    }
    this.comparing = null;
    if (answer.compared && !answer.compared.error) this.save(conversation);
    this.insight.show(this.insight.message);
  }

  showInsight() {
    const running = this.running?.conversation === this.conversation ? this.running.answer : null;
    this.insight.show(running ?? this.lastAnswer, { isRunning: Boolean(running) });
  }

  // The server

  async serverChanged(state) {
    this.showRunning();
    if (state !== "ready") return;
    try {
      await this.readServer();
    } catch (error) {
      if (error.status === 401) this.askForKey();
    }
  }

  async readServer() {
    const { data } = await get("v1/models");
    byId("server-model").textContent = data[0].id;
    const names = data[0].meta?.drafters ?? [];
    byId("drafters").replaceChildren(...names.map((name) => element("option", { value: name })));
  }

  askForKey() {
    if (!byId("key").open) openDialog("key");
  }

  /** Throws ApiError for a key that the server does not take. */
  async useKey(key) {
    setApiKey(key);
    try {
      await this.readServer();
    } catch (error) {
      throw error.status === 401 ? new Error("This key is not the right one.") : error;
    }
  }

  // Settings

  openSettings() {
    settings.fill(this.settings);
    byId("set-system").value = this.conversation.system;
    openDialog("settings");
  }

  saveSettings(chosen, system) {
    this.settings = chosen;
    settings.save(chosen);
    this.conversation.system = system;
    this.save(this.conversation);
    this.open(this.conversation);
    announce("Settings saved.");
  }

  // What can be done now

  showRunning() {
    const isRunning = this.running !== null;
    byId("send").disabled = this.server.state !== "ready" && this.server.state !== "unknown";
    const [shown, gone] = (isRunning ? ["stop", "send"] : ["send", "stop"]).map(byId);
    const hadFocus = document.activeElement === gone;
    shown.hidden = false;
    gone.hidden = true;
    if (hadFocus) (shown.disabled ? byId("text") : shown).focus(); // or the keyboard would begin at the top again
    document.body.dataset.running = String(isRunning);
  }

  fitComposer() {
    const field = byId("text");
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }
}

function comparison(answer, plain) {
  const n = plain.trace.nTokens;
  const isSame = answer.content.text.startsWith(plain.content.text) && answer.reasoning.text.startsWith(plain.reasoning.text);
  return { perSecond: plain.trace.tokensPerSecond, nTokens: n, isSame, isGreedy: answer.request.temperature === 0, at: Date.now() };
}

new Page().start();
