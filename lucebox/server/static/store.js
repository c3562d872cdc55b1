// Conversations, kept in this browser: one entry of localStorage each, under the address of this page.

import { MarkedText, Trace } from "./trace.js";

const FORMAT = "lucebox.conversations/1";
const MAX_TITLE = 120;

/** An answer under way or kept. */
export function newAnswer() {
  const trace = new Trace();
  return {
    role: "assistant", content: new MarkedText(trace), reasoning: new MarkedText(trace), calls: [], trace,
    finishReason: null, error: null, compared: null, request: null,
  };
}

export function newConversation(system = "") {
  const now = Date.now();
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", created: now, updated: now, system, messages: [] };
}

/** What a conversation is called: its title, or the beginning of its first message. */
export function titleOf(conversation) {
  const first = conversation.messages.find((message) => message.role === "user");
  return conversation.title || first?.content.trim().split("\n")[0].slice(0, 80) || "New conversation";
}

export class Store {
  constructor() {
    this.prefix = `lucebox.conversation:${new URL(".", document.baseURI).pathname}:`;
    this.conversations = [];
    this.lacksRoom = false;
    this.#load();
  }

  /** Newest first. */
  sorted() {
    return [...this.conversations].sort((a, b) => b.updated - a.updated);
  }

  find(id) {
    return this.conversations.find((conversation) => conversation.id === id) ?? null;
  }

  add(conversation) {
    this.conversations.push(conversation);
    return conversation;
  }

  /** Writes it down, without traces of tokens where there is no room for them. False: not even so. */
  save(conversation) {
    if (!this.find(conversation.id) || !conversation.messages.length) return true;
    this.lacksRoom = !(this.#write(conversation, true) || this.#write(conversation, false));
    return !this.lacksRoom;
  }

  remove(conversation) {
    this.conversations = this.conversations.filter((other) => other !== conversation);
    try {
      localStorage.removeItem(this.prefix + conversation.id);
    } catch {
      // Nothing was kept.
    }
  }

  /** Takes over what another tab did to the entry `key`; the id of a conversation of ours, or null. */
  takeOver(key) {
    if (!key?.startsWith(this.prefix)) return null;
    const id = key.slice(this.prefix.length);
    this.conversations = this.conversations.filter((conversation) => conversation.id !== id);
    if (localStorage.getItem(key) !== null) this.#loadOne(key);
    return id;
  }

  exported() {
    const kept = this.sorted().filter((conversation) => conversation.messages.length);
    return JSON.stringify({ format: FORMAT, conversations: kept }, null, 1);
  }

  /** Adds what `exported` wrote; conversations that are here stay. Throws Error for anything else. */
  import(text) {
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      throw new Error("The file is no JSON.");
    }
    if (data?.format !== FORMAT || !Array.isArray(data.conversations)) throw new Error("The file holds no conversations of this page.");
    const added = data.conversations.map(revived);
    for (const conversation of added) {
      if (this.find(conversation.id)) conversation.id = newConversation().id;
      this.add(conversation);
      this.save(conversation);
    }
    return added.length;
  }

  #load() {
    try {
      for (let i = 0; i < localStorage.length; i += 1) {
        const key = localStorage.key(i);
        if (key.startsWith(this.prefix)) this.#loadOne(key);
      }
    } catch {
      this.lacksRoom = true; // no storage at all: conversations last as long as the tab
    }
  }

  #loadOne(key) {
    try {
      this.conversations.push(revived(JSON.parse(localStorage.getItem(key))));
    } catch (error) {
      console.warn("a conversation cannot be read, and is left alone", key, error);
    }
  }

  #write(conversation, withTraces) {
    const replacer = (key, value) => (key === "trace" && !withTraces ? undefined : value);
    try {
      localStorage.setItem(this.prefix + conversation.id, JSON.stringify(conversation, replacer));
      return true;
    } catch {
      return false;
    }
  }
}

function revived(stored) {
  const check = (holds) => {
    if (!holds) throw new Error("The file holds a conversation that cannot be read.");
  };
  check(stored && typeof stored.id === "string" && Array.isArray(stored.messages));
  const messages = stored.messages.map((message) => {
    if (message.role === "user") {
      check(typeof message.content === "string");
      return { role: "user", content: message.content };
    }
    check(message.role === "assistant" && typeof message.content?.text === "string");
    const trace = new Trace(message.trace ?? null);
    return {
      ...newAnswer(),
      trace,
      content: new MarkedText(trace, placed(message.content, message.trace)),
      reasoning: new MarkedText(trace, placed(message.reasoning, message.trace)),
      calls: Array.isArray(message.calls) ? message.calls : [],
      finishReason: message.finishReason ?? null,
      error: typeof message.error?.message === "string" ? message.error : null,
      compared: message.compared ?? null,
      request: message.request ?? null,
    };
  });
  return {
    id: stored.id,
    title: String(stored.title ?? "").slice(0, MAX_TITLE),
    created: Number(stored.created) || Date.now(),
    updated: Number(stored.updated) || Date.now(),
    system: String(stored.system ?? ""),
    messages,
  };
}

function placed(text, trace) {
  return trace ? text : { text: text?.text ?? "", places: [] };
}
