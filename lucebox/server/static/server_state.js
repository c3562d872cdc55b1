// What /health says, asked often while something is wrong and seldom otherwise.

import { health } from "./api.js";
import { byId } from "./dom.js";

const READY_MS = 10_000;
const WAITING_MS = 1_000;
const HIDDEN_MS = 60_000;

/** Watches the server. `onChange(state)` hears of "ready", "loading", … and of "unreachable". */
export class ServerState {
  constructor(onChange) {
    this.state = "unknown";
    this.onChange = onChange;
    this.timer = null;
    document.addEventListener("visibilitychange", () => document.hidden || this.check());
    window.addEventListener("online", () => this.check());
  }

  /** Asks now. */
  async check() {
    clearTimeout(this.timer);
    const found = await health();
    const before = this.state;
    this.state = found?.status ?? "unreachable";
    this.#show(found);
    if (this.state !== before) this.onChange(this.state, before);
    const wait = this.state === "ready" ? READY_MS : WAITING_MS;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), document.hidden ? HIDDEN_MS : wait);
  }

  #show(found) {
    byId("server-dot").dataset.state = found ? this.state : "failed";
    const progress = found?.progress ?? 0;
    const words = {
      ready: found?.degraded ? "degraded" : "ready",
      loading: `loading ${Math.round(100 * progress)}%`,
      unreachable: "unreachable",
    };
    byId("server-state").textContent = words[this.state] ?? this.state;
    const banner = byId("banner");
    const text = explained(this.state, found);
    banner.hidden = !text;
    if (byId("banner-text").textContent !== text) byId("banner-text").textContent = text;
    const bar = byId("banner-progress");
    bar.hidden = this.state !== "loading";
    bar.value = progress;
  }
}

function explained(state, found) {
  switch (state) {
    case "ready":
      return found.degraded ? `Answers come slower than they should: ${found.degraded}` : "";
    case "loading":
      return `The model is loading${found.detail ? `: ${found.detail}` : ""}. Messages can be sent when it is there.`;
    case "restarting":
      return `The engine is being started again${found.detail ? `: ${found.detail}` : ""}.`;
    case "unreachable":
      return "The server cannot be reached. It is asked again every second; start it again if it was stopped.";
    default:
      return `The server cannot answer${found?.detail ? `: ${found.detail}` : ""}.`;
  }
}
