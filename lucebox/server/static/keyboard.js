// Shortcuts. All of them are in the dialog that `?` opens.

import { closeDrawers, toggleColours } from "./appearance.js";
import { openDialog } from "./dialogs.js";
import { byId } from "./dom.js";

/** Listens for keys on behalf of `page`. */
export function setUp(page) {
  byId("text").addEventListener("keydown", (event) => {
    const isSend = event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;
    if (!isSend) return;
    event.preventDefault();
    if (!byId("send").disabled) page.send();
  });
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.isComposing) return;
    if (event.key === "Escape") escape(page);
    else if (event.altKey && !event.ctrlKey && !event.metaKey) alt(event, page);
    else if (!isTyping(event.target) && !event.ctrlKey && !event.metaKey) plain(event);
  });
}

function escape(page) {
  if (closeDrawers()) return;
  page.stop();
}

function alt(event, page) {
  const does = {
    KeyN: () => page.begin(),
    KeyR: () => page.regenerate(),
    KeyC: toggleColours,
    KeyP: () => byId("toggle-insight").click(),
  }[event.code];
  if (!does) return;
  event.preventDefault();
  does();
}

function plain(event) {
  if (event.key === "/") {
    event.preventDefault();
    byId("text").focus();
  } else if (event.key === "?") {
    openDialog("help");
  }
}

function isTyping(target) {
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement
    || (target instanceof HTMLInputElement && target.type !== "checkbox");
}
