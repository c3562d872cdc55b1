// Before anything is drawn: the theme that was chosen here, if one was.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("lucebox.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // No storage: as the system.
  }
})();
