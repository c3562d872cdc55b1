// What can be wrong with a page, each as a list of what is; read by tests/support/browser.py.
({
  // Controls without a name that assistive technology could say.
  unnamed() {
    const own = (e) => (e.getAttribute("aria-label") || "").trim()
      || (e.labels && [...e.labels].map((l) => l.textContent).join(" ").trim())
      || [...e.childNodes].map((n) => n.textContent).join(" ").trim();
    const labelled = (e) => document.getElementById(e.getAttribute("aria-labelledby"))?.textContent.trim();
    const kinds = "button, input, select, textarea, a, dialog, nav, aside, main, summary, [role=img], [role=log]";
    return [...document.querySelectorAll(kinds)]
      .filter((e) => !labelled(e) && !own(e))
      .map((e) => e.outerHTML.slice(0, 120));
  },

  // Texts whose contrast with what lies behind them is under 4.5 (WCAG 2.2, 1.4.3).
  lowContrast() {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const over = (colours) => {
      canvas.clearRect(0, 0, 1, 1);
      for (const colour of colours) {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
      }
      return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => {
      const [r, g, b] = rgb.map((c) => linear(c / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim();
      const parent = walker.currentNode.parentElement;
      if (!text || !parent.checkVisibility({ visibilityProperty: true })) continue;
      if (parent.closest("button:disabled, script, .visually-hidden, noscript, title")) continue;
      const grounds = [];
      for (let e = parent; e; e = e.parentElement) grounds.unshift(getComputedStyle(e).backgroundColor);
      const style = getComputedStyle(parent);
      const colour = parent instanceof SVGElement ? style.fill : style.color;
      const [a, b] = [light(over([...grounds, colour])), light(over(grounds))].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}, ${colour} on ${grounds.at(-1)}`);
    }
    return found;
  },

  // What a finger has to hit and is smaller than 44 pixels (WCAG 2.2, 2.5.5).
  smallTargets() {
    const dialog = document.querySelector("dialog[open]");
    return [...(dialog ?? document).querySelectorAll("button, select, input, summary, textarea")]
      .filter((e) => e.checkVisibility({ visibilityProperty: true }))
      .map((e) => e.closest("label.switch") ?? e)
      .map((e) => [e.id || e.textContent.trim(), e.getBoundingClientRect()])
      .filter(([, r]) => r.height < 43.9 || r.width < 43.9)
      .map(([name, r]) => `${name}: ${r.width.toFixed(0)} x ${r.height.toFixed(0)}`);
  },

  // By how many pixels the page is wider than its window.
  overflow() {
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth > clientWidth ? [scrollWidth - clientWidth] : [];
  },

  // Ids that are there twice, and labels of nothing.
  brokenReferences() {
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
    const names = ["aria-controls", "aria-labelledby", "aria-describedby", "for", "list"];
    const lost = names.flatMap((name) => [...document.querySelectorAll(`[${name}]`)]
      .map((e) => e.getAttribute(name))
      .filter((id) => !document.getElementById(id)));
    return [...twice, ...lost];
  },
})
