// Theme, colours of tokens, and the drawers.

import { announce, byId } from "./dom.js";

const THEMES = ["system", "light", "dark"];
const NARROW = window.matchMedia("(max-width: 860px)");

function keep(name, value) {
  try {
    localStorage.setItem(`lucebox.${name}`, value);
  } catch {
    // It lasts as long as the tab.
  }
}

function kept(name) {
  try {
    return localStorage.getItem(`lucebox.${name}`);
  } catch {
    return null;
  }
}

/** Sets up the switches. `onInsight` is called when the panel opens. */
export function setUpAppearance(onInsight) {
  setUpTheme();
  setUpColours();
  byId("toggle-insight").addEventListener("click", () => setInsight(document.body.dataset.insight !== "open", onInsight));
  byId("close-insight").addEventListener("click", () => setInsight(false));
  byId("open-conversations").addEventListener("click", () => setDrawer(true));
  byId("close-conversations").addEventListener("click", () => setDrawer(false));
  byId("scrim").addEventListener("click", closeDrawers);
  NARROW.addEventListener("change", () => {
    if (NARROW.matches) setInsight(false); // it would lie over what is being written
    showScrim();
  });
  setInsight(!NARROW.matches && kept("insight") !== "closed", onInsight);
}

/** Closes what lies over the chat on narrow screens; whether something did. */
export function closeDrawers() {
  if (!NARROW.matches || byId("scrim").hidden) return false;
  if (document.body.dataset.insight === "open") setInsight(false);
  if (document.body.dataset.drawer) setDrawer(false);
  return true;
}

export function toggleColours() {
  byId("colours").click();
}

export function setDrawer(isOpen) {
  document.body.dataset.drawer = isOpen ? "conversations" : "";
  byId("open-conversations").setAttribute("aria-expanded", String(isOpen));
  showScrim();
  if (NARROW.matches) byId(isOpen ? "close-conversations" : "open-conversations").focus();
}

function setInsight(isOpen, onOpen = () => {}) {
  const wasOpen = document.body.dataset.insight === "open";
  const hadFocus = document.activeElement !== document.body;
  document.body.dataset.insight = isOpen ? "open" : "closed";
  byId("toggle-insight").setAttribute("aria-expanded", String(isOpen));
  if (!NARROW.matches) keep("insight", isOpen ? "open" : "closed");
  showScrim();
  if (NARROW.matches && wasOpen !== isOpen && hadFocus) byId(isOpen ? "close-insight" : "toggle-insight").focus();
  if (isOpen) onOpen();
}

function showScrim() {
  const isOver = NARROW.matches && (document.body.dataset.drawer === "conversations" || document.body.dataset.insight === "open");
  byId("scrim").hidden = !isOver;
  for (const behind of document.querySelectorAll(".skip, .bar, .chat")) behind.inert = isOver;
}

function setUpTheme() {
  const button = byId("theme");
  const root = document.documentElement;
  const show = () => button.setAttribute("aria-label", `Theme: ${root.dataset.theme ?? "as the system"}`);
  button.addEventListener("click", () => {
    const now = THEMES.indexOf(root.dataset.theme ?? "system");
    const next = THEMES[(now + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    keep("theme", next);
    show();
    announce(button.getAttribute("aria-label"));
  });
  show();
}

function setUpColours() {
  const box = byId("colours");
  const show = () => {
    document.body.dataset.colours = box.checked ? "on" : "off";
    byId("log").classList.toggle("coloured", box.checked);
  };
  box.checked = kept("colours") !== "off";
  box.addEventListener("change", () => {
    keep("colours", box.checked ? "on" : "off");
    show();
    announce(box.checked ? "Colours on." : "Colours off.");
  });
  show();
}
