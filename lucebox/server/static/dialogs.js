// Dialogs: settings, the API key, renaming, deleting, help.

import { byId } from "./dom.js";
import * as settings from "./settings.js";

/** Opens the dialog; resolves when it closes, to "yes" where it was confirmed. */
export function openDialog(id) {
  const dialog = byId(id);
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}

/** Asks before something is deleted. */
export async function confirmed(text) {
  byId("confirm-text").textContent = text;
  return await openDialog("confirm") === "yes";
}

/** Wires the dialogs' own buttons to what the page does. */
export function setUpDialogs({ openSettings, saveSettings, useKey }) {
  for (const id of ["settings", "key", "rename"]) {
    byId(`${id}-cancel`).addEventListener("click", () => byId(id).close(""));
  }
  byId("confirm-no").addEventListener("click", () => byId("confirm").close(""));
  byId("open-settings").addEventListener("click", openSettings);
  byId("open-help").addEventListener("click", () => openDialog("help"));
  byId("settings-reset").addEventListener("click", () => {
    settings.fill(Object.fromEntries(Object.keys(settings.load()).map((name) => [name, ""])));
    byId("set-system").value = "";
    showProblem("settings", "");
  });
  submitted("settings", () => saveSettings(settings.read(), byId("set-system").value.trim()));
  submitted("key", () => useKey(byId("key-text").value.trim()));
  submitted("rename", () => {});
}

/** Closes the dialog with "yes" when its form is sent; an Error that `accept` throws stays in it as words. */
function submitted(id, accept) {
  byId(`${id}-form`).noValidate = id === "settings";
  byId(`${id}-form`).addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await accept();
      showProblem(id, "");
      byId(id).close("yes");
    } catch (error) {
      showProblem(id, error.message);
      error.field?.focus();
    }
  });
}

function showProblem(id, text) {
  const problem = document.getElementById(`${id}-error`);
  if (!problem) return;
  problem.textContent = text;
  problem.hidden = !text;
}
