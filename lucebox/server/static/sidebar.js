// The list of conversations, and files of them.

import { setDrawer } from "./appearance.js";
import { announce, byId, element } from "./dom.js";
import { titleOf } from "./store.js";

export class Sidebar {
  constructor(store, { open, remove, rename, begin }) {
    this.store = store;
    this.open = open;
    this.current = null;
    this.list = byId("conversation-list");
    this.list.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      const conversation = button && this.store.find(button.closest("li").dataset.id);
      if (!conversation) return;
      if (button.dataset.action === "rename") rename(conversation);
      else if (button.dataset.action === "delete") remove(conversation);
      else this.#chosen(() => open(conversation));
    });
    byId("new").addEventListener("click", () => this.#chosen(begin));
    byId("export").addEventListener("click", () => this.#export());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
  }

  /** Shows all conversations, `current` among them as the one that is open. */
  show(current) {
    this.current = current;
    const shown = this.store.sorted().filter((conversation) => conversation.messages.length || conversation === current);
    this.list.replaceChildren(...shown.map((conversation) => this.#row(conversation, conversation === current)));
    byId("export").disabled = !shown.some((conversation) => conversation.messages.length);
  }

  #row(conversation, isCurrent) {
    const title = titleOf(conversation);
    const opener = element("button", { type: "button", className: "conversation", title }, title);
    const row = element("li", { dataset: { id: conversation.id, current: String(isCurrent) } }, opener);
    if (isCurrent) {
      opener.setAttribute("aria-current", "true");
      const button = (action, text) => {
        const made = element("button", { type: "button", dataset: { action } }, text);
        made.setAttribute("aria-label", `${text} “${title}”`);
        return made;
      };
      row.append(element("div", { className: "conversation-buttons" }, button("rename", "Rename"), button("delete", "Delete")));
    }
    return row;
  }

  #chosen(act) {
    if (document.body.dataset.drawer === "conversations") setDrawer(false);
    act();
  }

  #export() {
    const address = URL.createObjectURL(new Blob([this.store.exported()], { type: "application/json" }));
    const day = new Date().toISOString().slice(0, 10);
    element("a", { href: address, download: `lucebox-conversations-${day}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    announce("Conversations exported.");
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      const n = this.store.import(await file.text());
      this.show(this.current);
      this.#say(`${n} conversation${n === 1 ? "" : "s"} imported.`);
    } catch (error) {
      this.#say(error.message);
    }
  }

  #say(text) {
    byId("side-note").textContent = text;
    announce(text);
  }
}
