// Elements, without any markup in strings.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An HTML element with properties (`dataset` too) and children: nodes or text. */
export function element(name, properties = {}, ...children) {
  const { dataset, ...rest } = properties;
  const node = Object.assign(document.createElement(name), rest);
  Object.assign(node.dataset, dataset);
  node.append(...children);
  return node;
}

/** An SVG element with attributes and children. */
export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

/** Copies text, where the browser lets a page at a plain http address do so too. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = element("textarea", { value: text, className: "visually-hidden" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Says something to screen readers, once. */
export function announce(text) {
  byId("status").textContent = text;
}
