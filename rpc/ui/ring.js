// The ring: which node owns how many partitions, and which nodes keep their copies.
"use strict";

import { at, count } from "./words.js";
import { draw } from "./graph.js";

let ring = null; // as the node has said
let chosen = ""; // name of a node
let sums = []; // by owner: {owned, heirs: [by node]}
let order = []; // names as they are drawn

export function setRing(fresh) {
  ring = fresh;
  sums = ring.names.map(() => ({ owned: 0, heirs: ring.names.map(() => 0) }));
  ring.owners.forEach((owner, p) => {
    if (owner < 0) return;
    sums[owner].owned++;
    if (ring.heirs[p] >= 0) sums[owner].heirs[ring.heirs[p]]++;
  });
  order = ring.names;
  show();
}

export const ringName = () => (ring ? ring.ring : "");
export const owned = (name) => (ring && ring.names.includes(name) ? sums[ring.names.indexOf(name)].owned : 0);
export const isChosen = (name) => name === chosen;

export function choose(name) {
  chosen = chosen === name ? "" : name;
  show();
}

// colour of a node: hues apart, the lightness by turns. Names and the table say the same.
function colour(i, n) {
  return "hsl(" + Math.round(i * 360 / n + 200) % 360 + " 55% " + (i % 2 ? 42 : 58) + "%)";
}

const point = (r, turn) => (150 + r * Math.sin(turn)).toFixed(2) + " " + (150 - r * Math.cos(turn)).toFixed(2);

function arc(inner, outer, a, b) {
  b = Math.min(b, a + 2 * Math.PI - 1e-4);
  const large = b - a > Math.PI ? 1 : 0;
  return "M" + point(outer, a) + "A" + outer + " " + outer + " 0 " + large + " 1 " + point(outer, b) +
    "L" + point(inner, b) + "A" + inner + " " + inner + " 0 " + large + " 0 " + point(inner, a) + "Z";
}

function piece(d, fill, dim, title) {
  const path = draw("path", { d, class: dim ? "dim" : "" });
  path.style.fill = fill;
  path.append(draw("title", {}, title));
  return path;
}

export function show() {
  if (!ring) return;
  const n = order.length;
  const all = ring.owners.length;
  const parts = [];
  let turn = 0;
  sums.forEach((s, i) => {
    if (s.owned === 0) return;
    const name = order[i];
    const width = s.owned / all * 2 * Math.PI;
    const dim = chosen !== "" && chosen !== name;
    parts.push(piece(arc(108, 140, turn, turn + width), colour(i, n), dim, name + " owns " + count(s.owned) + " partitions"));
    let inside = turn;
    s.heirs.forEach((copies, k) => {
      if (copies === 0) return;
      const part = copies / all * 2 * Math.PI;
      parts.push(piece(arc(84, 104, inside, inside + part), colour(k, n), chosen !== "" && chosen !== name && chosen !== order[k],
        order[k] + " keeps copies of " + count(copies) + " of them"));
      inside += part;
    });
    if (width > 0.25 && n <= 16) {
      const [tx, ty] = point(124, turn + width / 2).split(" ");
      const label = draw("text", { x: tx, y: Number(ty) + 4, "text-anchor": "middle", class: "on" }, name.length > 9 ? name.slice(0, 8) + "…" : name);
      parts.push(label);
    }
    turn += width;
  });
  const lines = chosen === "" ? [count(all) + " partitions", n + (n === 1 ? " node" : " nodes"), "epoch " + ring.epoch]
    : [chosen, "owns " + count(owned(chosen)), "copies at:", ...copies(chosen)];
  lines.slice(0, 7).forEach((text, i) => parts.push(draw("text", {
    x: 150, y: 150 + 16 * (i - (Math.min(lines.length, 7) - 1) / 2) + 4, "text-anchor": "middle",
  }, text.length > 22 ? text.slice(0, 21) + "…" : text)));
  const svg = draw("svg", { viewBox: "0 0 300 300", role: "img", "aria-label": "The ring. The table beside it says the same." });
  svg.append(...parts);
  at("ring").replaceChildren(svg);
}

// copies are the nodes with copies of what a node owns.
function copies(name) {
  const i = order.indexOf(name);
  if (i < 0) return ["none"];
  const list = order.map((other, k) => [other, sums[i].heirs[k]]).filter(([, c]) => c > 0).sort((a, b) => b[1] - a[1]);
  return list.length ? list.map(([other, c]) => other + " " + count(c)) : ["none"];
}
