// Charts of one answer, as SVG with a sentence for who cannot see them.

import { element, svg } from "./dom.js";
import { ORIGINS } from "./trace.js";

const WIDTH = 300;
const MAX_POSITIONS = 16;
const FEW_DRAFTS = 5; // of fewer, counts are shown: a share would say too much
const MAX_LENGTHS = 150;
const LANE_ROUNDS = 24;

/** Puts a chart into `root`: an SVG called `label`, or a sentence where there is nothing to draw. */
function show(root, height, label, children) {
  if (!children) {
    root.replaceChildren(element("p", { className: "none" }, label));
    return;
  }
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...children);
  root.replaceChildren(chart);
}

const label = (x, y, text, attributes = {}) => svg("text", { x, y, ...attributes }, text);
const percent = (share) => `${Math.round(100 * share)}%`;

/** A bar of shares and a row of figures for each origin. */
export function origins(root, trace) {
  const counts = trace.counts();
  const total = trace.nTokens;
  const shown = ORIGINS.map((name, i) => ({ name, n: counts[i] })).filter(({ n }) => n);
  const sorted = ["accepted", "corrected", "bonus", "forced", "plain"].map((name) => shown.find((s) => s.name === name)).filter(Boolean);
  let x = 0;
  const bars = sorted.map(({ name, n }) => {
    const width = (WIDTH * n) / total;
    const bar = svg("rect", { x, y: 0, width: Math.max(width - 1, 0.5), height: 10, class: name });
    x += width;
    return bar;
  });
  const text = sorted.map(({ name, n }) => `${n} ${name}`).join(", ");
  show(root, 10, total ? `Of ${total} tokens: ${text}.` : "No tokens yet.", total ? bars : null);
  root.append(element("dl", { className: "origin-rows" }, ...sorted.map(({ name, n }) => element("div", {},
    element("span", { className: "swatch", dataset: { origin: name } }), element("dt", {}, name), element("dd", {}, String(n)), element("dd", {}, percent(n / total))))));
}

/** How often the token at each depth of a draft was kept, of all rounds with a draft. */
export function positions(root, trace) {
  const all = trace.positions();
  if (!all.length) {
    show(root, 0, "No drafts in this answer.", null);
    return;
  }
  const shown = all.slice(0, MAX_POSITIONS);
  const nRounds = all[0][0];
  const drafts = nRounds === 1 ? "1 draft" : `${nRounds} drafts`;
  const height = 100;
  const [top, bottom, left] = [14, height - 16, 32];
  const step = (WIDTH - left) / Math.max(shown.length, 4);
  const y = (share) => bottom - share * (bottom - top);
  const share = (n) => (nRounds < FEW_DRAFTS ? `${n}/${nRounds}` : percent(n / nRounds));
  const parts = [0, 0.5, 1].flatMap((share) => [
    svg("line", { x1: left, x2: WIDTH, y1: y(share), y2: y(share), class: share ? "grid" : "axis" }),
    label(left - 4, y(share) + 3.5, percent(share), { "text-anchor": "end" }),
  ]);
  shown.forEach(([drafted, accepted], i) => {
    const x = left + i * step + step * 0.15;
    const width = Math.min(step * 0.7, 34);
    const title = svg("title", {}, `Position ${i + 1}: kept ${accepted} times; guessed in ${drafted} of ${drafts}`);
    parts.push(svg("g", {}, title,
      svg("rect", { x, y: y(drafted / nRounds), width, height: bottom - y(drafted / nRounds), class: "drafted" }),
      svg("rect", { x, y: y(accepted / nRounds), width, height: bottom - y(accepted / nRounds), class: "accepted" })));
    parts.push(label(x + width / 2, bottom + 12, String(i + 1), { "text-anchor": "middle" }));
    const above = y(Math.max(accepted, drafted) / nRounds) - 3;
    if (step > 24) parts.push(label(x + width / 2, above, share(accepted), { "text-anchor": "middle", class: "strong" }));
  });
  const words = shown.map(([, accepted], i) => `position ${i + 1} ${share(accepted)}`).join(", ");
  show(root, height, `Share of ${drafts} whose token was kept: ${words}.`, parts);
  root.append(element("p", { className: "fine" }, `Of ${drafts}. Filled: kept; light: guessed, not kept.`));
}

/** Tokens guessed in each round, and those of them that were kept. */
export function lengths(root, trace) {
  const rounds = trace.rounds.slice(-MAX_LENGTHS);
  const most = Math.max(...rounds.map((round) => round.depth), 0);
  if (!most) {
    show(root, 0, "No drafts in this answer.", null);
    return;
  }
  const height = 64;
  const [top, bottom, left] = [6, height - 14, 32];
  const step = (WIDTH - left) / rounds.length;
  const y = (n) => bottom - (n / most) * (bottom - top);
  const outline = (of) => {
    const points = rounds.map((round, i) => `${(left + i * step).toFixed(1)} ${y(of(round)).toFixed(1)}H${(left + (i + 1) * step).toFixed(1)}`);
    return points.map((point, i) => (i ? `V${point.split(" ")[1]}` : `M${point}`)).join("");
  };
  const accepted = outline((round) => round.nAccepted);
  const mean = rounds.reduce((sum, round) => sum + round.depth, 0) / rounds.length;
  const parts = [
    svg("line", { x1: left, x2: WIDTH, y1: bottom, y2: bottom, class: "axis" }),
    label(left - 4, y(most) + 5, String(most), { "text-anchor": "end" }),
    label(left - 4, bottom + 3, "0", { "text-anchor": "end" }),
    svg("path", { d: `${accepted}V${bottom}H${left}Z`, class: "area" }),
    svg("path", { d: outline((round) => round.depth), class: "line" }),
    label(left, height - 2, `round ${trace.rounds.length - rounds.length + 1}`),
    label(WIDTH, height - 2, String(trace.rounds.length), { "text-anchor": "end" }),
  ];
  show(root, height, `Draft lengths of ${rounds.length} rounds: ${mean.toFixed(1)} tokens on average, ${most} at most.`, parts);
  root.append(element("p", { className: "fine" }, `Line: guessed, ${mean.toFixed(1)} a round. Area: kept.`));
}

/** When target and drafters computed, in the last rounds. */
export function lanes(root, trace) {
  const targets = trace.work.filter((span) => span.lane === "target").slice(-LANE_ROUNDS);
  if (!targets.length) {
    show(root, 0, "No times yet.", null);
    return;
  }
  const from = targets[0].startMs;
  const to = targets[targets.length - 1].endMs;
  const spans = trace.work.filter((span) => span.endMs > from && span.startMs < to);
  const height = 62;
  const left = 42;
  const x = (ms) => left + ((Math.max(ms, from) - from) / (to - from)) * (WIDTH - left);
  const parts = [["draft", 4], ["target", 26]].flatMap(([lane, y]) => [
    label(0, y + 11, lane),
    svg("line", { x1: left, x2: WIDTH, y1: y + 16, y2: y + 16, class: "grid" }),
    ...spans.filter((span) => span.lane === lane).map((span) => svg("rect", {
      x: x(span.startMs), y, width: Math.max(x(span.endMs) - x(span.startMs) - 0.4, 0.6), height: 16, class: span.isAhead ? "ahead" : lane,
    }, svg("title", {}, `${lane}${span.isAhead ? ", ahead" : ""}: ${(span.endMs - span.startMs).toFixed(1)} ms`))),
  ]);
  parts.push(label(left, height - 4, "0"), label(WIDTH, height - 4, `${(to - from).toFixed(0)} ms`, { "text-anchor": "end" }));
  const busy = (lane) => spans.filter((span) => span.lane === lane).reduce((sum, span) => sum + span.endMs - Math.max(span.startMs, from), 0);
  const shares = `draft ${percent(busy("draft") / (to - from))}, target ${percent(busy("target") / (to - from))} of the time`;
  show(root, height, `The last ${targets.length} rounds took ${(to - from).toFixed(0)} ms: ${shares}.`, parts);
  root.append(element("p", { className: "fine" }, `The last ${targets.length} rounds: ${shares}.`));
}
