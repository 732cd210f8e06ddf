// The graph of checks, with what has happened on it.
"use strict";

import { at, clock, count, make, say } from "./words.js";

// series are the lines, in the order of the numbers in a row.
const series = [["allowed", "allowed"], ["denied", "denied"], ["beyond", "beyond a limit"], ["degraded", "degraded"],
  ["candidate", "a candidate would deny"]];
const nodesAt = series.length; // in a row: how many nodes counted

// symbols of events: a shape and a word each, so that no colour is needed.
export const symbols = {
  joined: "▲", owning: "●", leaving: "▽", left: "▼", failed: "✕", restarted: "↻", handover: "⇄", takeover: "◆",
  bereft: "!", degraded: "≈", fenced: "■", reload: "⟳",
};
const bad = new Set(["failed", "bereft", "fenced"]);

let step = 1;
let from = 0;
let rows = [];
let events = [];

const svg = document.createElementNS(nameSpace(), "svg");

// nameSpace is that of SVG, which the parser knows.
function nameSpace() {
  return new DOMParser().parseFromString("<svg/>", "text/html").querySelector("svg").namespaceURI;
}

export function draw(name, attributes, text) {
  const e = document.createElementNS(svg.namespaceURI, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// begin empties the graph, for another span.
export function begin() {
  rows = [];
  from = 0;
}

// take adds rows to those that are here; what is known again is replaced.
export function take(fresh) {
  if (fresh.rows.length === 0) return;
  if (rows.length === 0 || step !== fresh.step) {
    [step, from, rows] = [fresh.step, fresh.from, fresh.rows];
  } else {
    const first = Math.round((fresh.from - from) / step);
    while (rows.length < first) rows.push(null);
    fresh.rows.forEach((r, i) => { if (first + i >= 0) rows[first + i] = r; });
    const most = step === 1 ? 300 : 360;
    if (rows.length > most) {
      from += (rows.length - most) * step;
      rows = rows.slice(-most);
    }
  }
  const slider = at("when");
  const last = slider.value === slider.max;
  slider.max = String(Math.max(0, whole() - 1));
  if (last) slider.value = slider.max;
}

// whole is how many rows are complete: nodes count at different instants, so the last one may not be.
function whole() {
  const n = rows.length;
  const nodes = (i) => (rows[i] ? rows[i][nodesAt] : 0);
  return n > 2 && nodes(n - 1) < nodes(n - 3) ? n - (nodes(n - 2) < nodes(n - 3) ? 2 : 1) : n;
}

// latest are rates a second, of the last row that is complete.
export function latest() {
  const r = rows[whole() - 1];
  const of = (i) => (r ? r[i] / step : 0);
  return { allowed: of(0), denied: of(1), beyond: of(2), degraded: of(3), candidate: of(4) };
}

export function setEvents(list) { events = list; }

// nice is a round number, n or above.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= n);
}

export function show() {
  const width = Math.max(280, at("graph").clientWidth);
  const height = 256;
  const box = { left: 52, right: width - 8, top: 22, bottom: height - 44 };
  const n = whole();
  const slots = step === 1 ? 300 : 360;
  const end = from + n * step;
  const x = (time) => box.right - (end - time) / (slots * step) * (box.right - box.left);
  const highest = Math.max(1, ...rows.slice(0, n).map((r) => (r ? Math.max(...r.slice(0, nodesAt)) / step : 0)));
  const most = 4 * nice(highest / 4);
  const y = (rate) => box.bottom - rate / most * (box.bottom - box.top);
  const parts = [];
  for (let k = 0; k <= 4; k++) {
    const rate = most * k / 4;
    parts.push(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(rate), y2: y(rate) }),
      draw("text", { x: box.left - 6, y: y(rate) + 4, "text-anchor": "end" }, count(rate)));
  }
  parts.push(draw("text", { x: 4, y: 12 }, "checks a second"));
  const every = step === 1 ? (width < 600 ? 120 : 60) : (width < 600 ? 1200 : 600);
  for (let time = Math.ceil((end - slots * step) / every) * every; time <= end && end > 0; time += every) {
    if (x(time) < box.left + 14 || x(time) > box.right - 14) continue;
    parts.push(draw("line", { class: "grid", x1: x(time), x2: x(time), y1: box.bottom, y2: box.bottom + 5 }),
      draw("text", { x: x(time), y: height - 4, "text-anchor": "middle" }, clock(time * 1000, "minutes")));
  }
  parts.push(...spans(x, box), ...lines(x, y, n), ...marks(x, box));
  const k = Number(at("when").value);
  if (rows[k]) {
    const time = from + (k + 1) * step;
    parts.push(draw("line", { class: "cursor", x1: x(time), x2: x(time), y1: box.top, y2: box.bottom }));
  }
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Checks a second by time, with events. The values are below; the events are in the table.");
  svg.replaceChildren(...parts);
  if (!svg.parentNode) at("graph").append(svg);
  say(at("values"), values(k));
}

// spans are times of degraded answers, and times without any node that counted.
function spans(x, box) {
  const list = [];
  const rect = (a, b, kind) => {
    const [left, right] = [Math.max(box.left, x(a)), Math.min(box.right, x(b))];
    if (right > left) list.push(draw("rect", { class: kind, x: left, width: Math.max(2, right - left), y: box.top, height: box.bottom - box.top }));
  };
  for (const e of events) {
    if (e.kind === "degraded") rect(e.at_ms / 1000 - 1, (e.until_ms || e.at_ms) / 1000 + 1, "span");
  }
  return list;
}

// lines leave out those that are 0 all the time, except allowed and denied.
function lines(x, y, n) {
  return series.flatMap(([kind], i) => {
    if (i > 1 && !rows.slice(0, n).some((r) => r && r[i] > 0)) return [];
    let path = "";
    let pen = false;
    for (let k = 0; k < n; k++) {
      const r = rows[k];
      if (!r || r[nodesAt] === 0) {
        pen = false;
        continue;
      }
      path += (pen ? "L" : "M") + x(from + (k + 1) * step).toFixed(1) + " " + y(r[i] / step).toFixed(1);
      pen = true;
    }
    return path ? [draw("path", { class: "line " + kind, d: path })] : [];
  });
}

// marks are events: a line each, and below it a symbol. Those that would lie on each other share one.
function marks(x, box) {
  const list = [];
  let last = { x: -99, kind: "" };
  for (const e of events) {
    const place = x(e.at_ms / 1000);
    if (place < box.left || place > box.right) continue;
    if (place - last.x < 14 && (e.kind === last.kind || !bad.has(e.kind))) continue;
    last = { x: place, kind: e.kind };
    list.push(draw("line", { class: bad.has(e.kind) ? "mark bad" : "mark", x1: place, x2: place, y1: box.top, y2: box.bottom + 8 }),
      draw("text", { x: place, y: box.bottom + 22, "text-anchor": "middle" }, symbols[e.kind] || "•"));
  }
  return list;
}

// values are those at a row, in words.
function values(k) {
  const r = rows[k];
  if (!r) return "";
  const words = series.flatMap(([, name], i) => (i < 2 || r[i] > 0 ? [name + " " + count(r[i] / step)] : []));
  return clock((from + k * step) * 1000, "seconds") + ": " + words.join(", ") + " a second, from " + r[nodesAt] + " nodes";
}

at("legend").replaceChildren(...series.map(([kind, name]) => {
  const sample = draw("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" });
  sample.append(draw("path", { class: "line " + kind, d: "M0 6L36 6" }));
  return make("li", {}, sample, name);
}));

// tell has the slider say the time and the values, and not the number of a row, to readers that move
// it. It is not said again as time goes on.
function tell() { at("when").setAttribute("aria-valuetext", values(Number(at("when").value))); }

at("when").addEventListener("input", () => { show(); tell(); });
at("when").addEventListener("focus", tell);
addEventListener("resize", show);
