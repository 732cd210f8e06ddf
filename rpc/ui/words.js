// Elements and words. Names and keys are put in as text, never as markup: clients choose them.
"use strict";

export const at = (id) => document.getElementById(id);

// make makes an element with attributes and children.
export function make(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// say sets a text if it is another one, so that nothing is read out again that was said already.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// notice shows a text, or hides its place if it is empty.
export function notice(node, text) {
  node.hidden = text === "";
  say(node, text);
}

// cell makes a cell of a text, a number, or an element. A short text is not broken. A number that is
// not known is NaN.
function cell(content) {
  const td = document.createElement("td");
  if (typeof content === "number") {
    td.className = "number";
    td.textContent = Number.isNaN(content) ? "–" : count(content);
    return td;
  }
  if (typeof content === "string") {
    td.className = content.length > 24 ? "text" : "short";
  } else {
    td.className = "text";
  }
  td.append(content);
  return td;
}

export function row(cells, kind) {
  const tr = document.createElement("tr");
  tr.className = kind || "";
  tr.append(...cells.map(cell));
  tr.cells[0].setAttribute("role", "rowheader"); // what the other cells are about
  return tr;
}

// fill puts rows into a table, unless one of its buttons has the focus.
export function fill(body, rows) {
  if (!body.contains(document.activeElement)) body.replaceChildren(...rows);
}

export const count = (n) => n.toLocaleString("en", { maximumFractionDigits: n !== 0 && Math.abs(n) < 10 ? 1 : 0 });

// large is a number that fits a tile: above a thousand million in a few digits.
export const large = (n) => (Math.abs(n) < 1e9 ? count(n) : n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }));

// some is a number of things.
export const some = (n, thing) => count(n) + " " + thing + (n === 1 ? "" : "s");

// span writes milliseconds for people; less than 0 is never.
export function span(ms) {
  if (ms < 0) return "never";
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = Math.round(ms / 1000);
  if (s < 120) return s + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

const two = (n) => String(n).padStart(2, "0");

// clock is a time of day; ms since 1970.
export function clock(ms, parts) {
  const d = new Date(ms);
  const text = two(d.getHours()) + ":" + two(d.getMinutes());
  if (parts === "minutes") return text;
  const seconds = text + ":" + two(d.getSeconds());
  return parts === "seconds" ? seconds : seconds + "." + String(d.getMilliseconds()).padStart(3, "0");
}

// terms fills a list of words and what they mean.
export function terms(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([word, text]) => [make("dt", {}, word), make("dd", {}, text)]));
}

// rule writes a limit in a few words.
export function rule(l) {
  const burst = l.burst && l.burst !== l.limit ? ", burst " + count(l.burst) : "";
  const per = l.per.replace(/m0s$/, "m").replace(/h0m$/, "h");
  return count(l.limit) + " in " + per + ", " + l.algorithm.replaceAll("_", " ") + burst +
    (l.consistency && l.consistency !== "exact" ? ", " + l.consistency : "") +
    (l.dry_run ? ", dry run" : "") + (l.on_deny && l.on_deny !== "reject" ? ", " + l.on_deny : "") +
    (l.overrides > 0 ? ", " + l.overrides + " overrides" : "");
}
