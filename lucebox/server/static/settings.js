// Sampling settings: what the form holds, what is kept, and what that means in a request.

import { byId } from "./dom.js";

const KEY = "lucebox.settings";
const NUMBERS = {
  temperature: [0, 2, "a number from 0 to 2"],
  top_p: [0, 1, "a number over 0, at most 1"],
  top_k: [0, 2 ** 31 - 1, "a whole number, 0 for off"],
  min_p: [0, 1, "a number from 0 to 1"],
  max_tokens: [1, 2 ** 31 - 1, "a whole number of at least 1"],
  seed: [-(2 ** 53), 2 ** 53, "a whole number"],
};
const WHOLE = ["top_k", "max_tokens", "seed"];
const TEXTS = ["speculation", "drafter", "draft_length"];

/** The kept settings: strings by field, "" where the server decides. */
export function load() {
  const empty = Object.fromEntries([...Object.keys(NUMBERS), ...TEXTS].map((name) => [name, ""]));
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    for (const name of Object.keys(empty)) if (typeof kept[name] === "string") empty[name] = kept[name];
  } catch {
    // None are kept.
  }
  return empty;
}

export function save(settings) {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // They last as long as the tab.
  }
}

export function fill(settings) {
  for (const [name, value] of Object.entries(settings)) byId(`set-${name}`).value = value;
}

/** What the form says. Throws Error with the field's element as `field`. */
export function read() {
  const settings = {};
  for (const [name, [low, high, wanted]] of Object.entries(NUMBERS)) {
    const field = byId(`set-${name}`);
    const value = field.value.trim();
    const number = Number(value);
    const isOff = value !== "" && (!Number.isFinite(number) || number < low || number > high || (WHOLE.includes(name) && !Number.isInteger(number)));
    if (isOff || field.validity.badInput) {
      const label = field.closest("label").querySelector("span").textContent;
      throw Object.assign(new Error(`${label} must be ${wanted}.`), { field });
    }
    settings[name] = value;
  }
  for (const name of TEXTS) settings[name] = byId(`set-${name}`).value.trim();
  return settings;
}

/** The request's fields that `settings` ask for. */
export function fields(settings) {
  const asked = {};
  for (const name of Object.keys(NUMBERS)) if (settings[name] !== "") asked[name] = Number(settings[name]);
  if (settings.speculation === "off") {
    asked.speculative = false;
  } else {
    const speculative = {};
    if (settings.speculation === "on") speculative.enabled = true;
    if (settings.drafter) speculative.drafter = settings.drafter;
    if (settings.draft_length) {
      const n = Number(settings.draft_length);
      speculative.draft_length = Number.isInteger(n) ? n : settings.draft_length;
    }
    if (Object.keys(speculative).length) asked.speculative = speculative;
  }
  return asked;
}

/** A word or two on what differs from the server's own choice. */
export function summary(settings) {
  const names = Object.entries(settings).filter(([, value]) => value !== "").map(([name, value]) => `${name.replace("_", " ")} ${value}`);
  return names.join(", ");
}
