// Markdown to elements. Text becomes text nodes and nothing else: what a model writes is never parsed as HTML.
// Works on offsets into the source, so that each leaf knows which tokens it is made of.

import { element } from "./dom.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^(#{1,6})\s+/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)/;
const QUOTE = /^ {0,3}>\s?/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 8;

/** The blocks of `source`: {kind, start, end, …}, in order, without gaps that matter. */
export function blocks(source) {
  return parseBlocks(linesOf(source, 0, source.length));
}

function linesOf(source, start, end) {
  const lines = [];
  let at = start;
  while (at < end) {
    const newline = source.indexOf("\n", at);
    const stop = newline < 0 || newline > end ? end : newline;
    lines.push({ start: at, end: stop, text: source.slice(at, stop) });
    at = stop + 1;
  }
  return lines;
}

function parseBlocks(lines, depth = 0) {
  const found = [];
  let i = 0;
  while (i < lines.length) {
    if (!lines[i].text.trim()) {
      i += 1;
      continue;
    }
    const [block, next] = blockAt(lines, i, depth);
    found.push(block);
    i = next;
  }
  return found;
}

function blockAt(lines, i, depth) {
  const line = lines[i];
  const fence = FENCE.exec(line.text);
  if (fence) return code(lines, i, fence);
  const heading = HEADING.exec(line.text);
  if (heading) {
    const leaf = [line.start + heading[0].length, line.end];
    return [{ kind: "heading", level: heading[1].length, start: line.start, end: line.end, leaf }, i + 1];
  }
  if (RULE.test(line.text)) return [{ kind: "rule", start: line.start, end: line.end }, i + 1];
  if (ITEM.test(line.text) && depth < MAX_DEPTH) return list(lines, i, depth);
  if (QUOTE.test(line.text)) return quote(lines, i);
  if (line.text.includes("|") && lines[i + 1] && TABLE_RULE.test(lines[i + 1].text) && lines[i + 1].text.includes("-")) return table(lines, i);
  return paragraph(lines, i, depth);
}

function code(lines, i, [, indent, mark, language]) {
  const close = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  let j = i + 1;
  while (j < lines.length && !close.test(lines[j].text)) j += 1;
  const inner = lines.slice(i + 1, j).map((line) => {
    const extra = Math.min(indent.length, line.text.length - line.text.trimStart().length);
    return [line.start + extra, line.end];
  });
  const end = (lines[j] ?? lines[lines.length - 1]).end;
  return [{ kind: "code", language, start: lines[i].start, end, lines: inner, isClosed: j < lines.length }, Math.min(j + 1, lines.length)];
}

function list(lines, i, depth) {
  const first = ITEM.exec(lines[i].text);
  const isOrdered = /\d/.test(first[2]);
  const base = first[1].length;
  const items = [];
  let j = i;
  while (j < lines.length) {
    const text = lines[j].text;
    const item = ITEM.exec(text);
    const indent = text.length - text.trimStart().length;
    if (!text.trim()) {
      const next = lines[j + 1];
      const nextItem = next && ITEM.exec(next.text);
      const goesOn = next && next.text.trim() && (next.text.length - next.text.trimStart().length > base || nextItem);
      if (!goesOn) break;
      items[items.length - 1].push(lines[j]);
    } else if (item && indent <= base + 1 && /\d/.test(item[2]) === isOrdered) {
      items.push([cut(lines[j], item[0].length)]);
    } else if (indent > base && items.length) {
      items[items.length - 1].push(cut(lines[j], Math.min(indent, base + first[2].length + first[3].length)));
    } else {
      break;
    }
    j += 1;
  }
  const number = isOrdered ? Number.parseInt(first[2], 10) : 1;
  const children = items.map((item) => parseBlocks(item, depth + 1));
  return [{ kind: isOrdered ? "ordered" : "bullets", number, items: children, start: lines[i].start, end: lines[j - 1].end }, j];
}

function cut(line, n) {
  return { start: line.start + n, end: line.end, text: line.text.slice(n) };
}

function quote(lines, i) {
  let j = i;
  const leaves = [];
  while (j < lines.length && QUOTE.test(lines[j].text)) {
    const mark = QUOTE.exec(lines[j].text)[0].length;
    leaves.push([lines[j].start + mark, lines[j].end]);
    j += 1;
  }
  return [{ kind: "quote", leaves, start: lines[i].start, end: lines[j - 1].end }, j];
}

function table(lines, i) {
  const rows = [cells(lines[i])];
  let j = i + 2;
  while (j < lines.length && lines[j].text.includes("|")) {
    rows.push(cells(lines[j]));
    j += 1;
  }
  return [{ kind: "table", rows, start: lines[i].start, end: lines[j - 1].end }, j];
}

function cells(line) {
  const found = [];
  let from = line.text.length - line.text.trimStart().length;
  if (line.text[from] === "|") from += 1;
  for (let at = from; at <= line.text.length; at += 1) {
    const isBorder = line.text[at] === "|" && line.text[at - 1] !== "\\";
    if (!isBorder && at < line.text.length) continue;
    const raw = line.text.slice(from, at);
    if (isBorder || raw.trim()) {
      const start = line.start + from + (raw.length - raw.trimStart().length);
      found.push([start, start + raw.trim().length]);
    }
    from = at + 1;
  }
  return found;
}

function paragraph(lines, i, depth) {
  let j = i + 1;
  const interrupts = (text) => !text.trim() || FENCE.test(text) || HEADING.test(text) || RULE.test(text) || QUOTE.test(text)
    || (depth < MAX_DEPTH && ITEM.test(text));
  while (j < lines.length && !interrupts(lines[j].text)) j += 1;
  const leaves = lines.slice(i, j).map((line) => [line.start + (line.text.length - line.text.trimStart().length), line.end]);
  return [{ kind: "paragraph", leaves, start: lines[i].start, end: lines[j - 1].end }, j];
}

/** The element of a block. `leaf(parent, start, end)` writes the text [start, end) of `source` into `parent`. */
export function render(block, source, leaf) {
  switch (block.kind) {
    case "heading": {
      const heading = element(`h${Math.min(block.level + 2, 5)}`);
      inline(heading, source, ...block.leaf, leaf);
      return heading;
    }
    case "rule":
      return element("hr");
    case "code":
      return renderCode(block, source, leaf);
    case "bullets":
    case "ordered":
      return renderList(block, source, leaf);
    case "quote":
      return lines(element("blockquote"), source, block.leaves, leaf);
    case "table":
      return renderTable(block, source, leaf);
    default:
      return lines(element("p"), source, block.leaves, leaf);
  }
}

function lines(parent, source, leaves, leaf) {
  leaves.forEach(([start, end], i) => {
    if (i) parent.append("\n");
    inline(parent, source, start, end, leaf);
  });
  return parent;
}

function renderCode(block, source, leaf) {
  const inner = element("code");
  block.lines.forEach(([start, end], i) => {
    if (i) inner.append("\n");
    leaf(inner, start, end);
  });
  const copy = element("button", { type: "button", dataset: { action: "copy-code" } }, "Copy code");
  const head = element("div", { className: "code-head" }, element("span", {}, block.language || "text"), copy);
  const pre = element("pre", { tabIndex: 0 }, inner);
  pre.setAttribute("aria-label", `Code, ${block.language || "text"}`);
  pre.setAttribute("role", "region");
  return element("div", { className: "code" }, head, pre);
}

function renderList(block, source, leaf) {
  const isOrdered = block.kind === "ordered";
  const root = element(isOrdered ? "ol" : "ul");
  if (isOrdered && block.number !== 1) root.start = block.number;
  for (const item of block.items) {
    const li = element("li");
    item.forEach((child, i) => {
      if (child.kind === "paragraph") {
        if (i) li.append("\n");
        lines(li, source, child.leaves, leaf);
      } else {
        li.append(render(child, source, leaf));
      }
    });
    root.append(li);
  }
  return root;
}

function renderTable(block, source, leaf) {
  const [head, ...rows] = block.rows;
  const row = (name, list) => element("tr", {}, ...list.map(([start, end]) => {
    const cell = element(name);
    inline(cell, source, start, end, leaf);
    return cell;
  }));
  const body = element("tbody", {}, ...rows.map((list) => row("td", list)));
  return element("div", { className: "table" }, element("table", {}, element("thead", {}, row("th", head)), body));
}

const INLINE = /(`+)(?!`)([\s\S]*?[^`])\1(?!`)|(\*\*)(?=\S)([\s\S]*?\S)\3|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s()]+)\)/g;

function inline(parent, source, start, end, leaf, depth = 0) {
  const text = source.slice(start, end);
  let at = 0;
  for (const match of depth < MAX_DEPTH ? text.matchAll(INLINE) : []) {
    if (match.index > at) leaf(parent, start + at, start + match.index);
    const from = start + match.index;
    at = match.index + match[0].length;
    if (match[1]) {
      const child = element("code");
      leaf(child, from + match[1].length, start + at - match[1].length);
      parent.append(child);
    } else if (match[3] || match[5] !== undefined) {
      const mark = match[3] ? 2 : 1;
      const child = element(match[3] ? "strong" : "em");
      inline(child, source, from + mark, start + at - mark, leaf, depth + 1);
      parent.append(child);
    } else {
      const child = element("a", { href: match[7], target: "_blank", rel: "noopener noreferrer" });
      leaf(child, from + 1, from + 1 + match[6].length);
      parent.append(child);
    }
  }
  if (at < text.length) leaf(parent, start + at, end);
}
