// What has happened, and what it cost.
"use strict";

import { at, clock, count, make, notice, row, some, span, terms } from "./words.js";
import { setEvents, symbols } from "./graph.js";

const known = new Map(); // events by key

const words = {
  joined: "joined", owning: "owns keys", leaving: "is leaving", left: "left", failed: "failed", restarted: "restarted",
  handover: "handover", takeover: "took over", bereft: "counters lost", degraded: "degraded answers", fenced: "stopped deciding",
  reload: "other limits",
};

export function begin() { known.clear(); }

export function take(list) {
  for (const e of list) known.set(e.key, e);
  const all = [...known.values()].sort((a, b) => a.at_ms - b.at_ms);
  setEvents(all);
  const latest = together(all).slice(-100).reverse();
  at("events").replaceChildren(...latest.map((e) => {
    const mark = make("span", { class: "symbol", "aria-hidden": "true" }, symbols[e.kind] || "•");
    return row([clock(e.at_ms), mark, words[e.kind] || e.kind, e.node, more(e)], e.kind === "failed" || e.kind === "bereft" ? "bad" : "");
  }));
  const failed = all.filter((e) => e.kind === "failed").reverse();
  at("no-failure").hidden = failed.length > 0;
  at("failed").replaceChildren(...failed.slice(0, 8).map((e) => card(e, all)));
}

// few is how many nodes are named one by one. Of more the number is told: a cluster may have fifty.
const few = 4;

const named = (names) => (names.length > few ? names.length + " nodes" : names.join(", "));

// together makes one row of the takeovers after one failure, if there are more than a few: what has
// failed would be out of sight below them.
function together(list) {
  const groups = [];
  for (const e of list) {
    const last = groups[groups.length - 1];
    if (last && last[0].kind === "takeover" && e.kind === "takeover" && e.at_ms - last[0].at_ms < 5000) last.push(e);
    else groups.push([e]);
  }
  return groups.flatMap((g) => (g.length <= few ? g
    : [{ ...g[0], node: g.length + " nodes", count: g.reduce((sum, e) => sum + e.count, 0) }]));
}

// replacements says which nodes have taken over, and when the last one had.
function replacements(takers) {
  if (takers.length === 0) return "no partitions were taken over yet";
  if (takers.length <= few) {
    return takers.map((x) => x.node + " (" + some(x.count, "partition") + ", by " + clock(x.at_ms, "seconds") + ")").join(", ");
  }
  return takers.length + " nodes (" + some(takers.reduce((sum, x) => sum + x.count, 0), "partition") + ", by " +
    clock(Math.max(...takers.map((x) => x.at_ms)), "seconds") + ")";
}

// more is what an event says besides.
function more(e) {
  switch (e.kind) {
    case "handover": return some(e.count, "partition") + " " + e.text;
    case "takeover": return some(e.count, "partition") + " of a node that is gone, from copies";
    case "bereft": return some(e.count, "partition") + " of which no copy was left; their keys are marked";
    case "degraded": return some(e.count, "answer") + ", within " + span(Math.max(1000, (e.until_ms || e.at_ms) - e.at_ms + 1000));
    case "fenced": return "it was stopped or cut off";
    case "reload": return e.text;
  }
  return (e.text ? e.text + ", " : "") + "seen by " + named(e.by);
}

// card says what became of one failed node.
function card(e, all) {
  const after = (kind) => all.filter((x) => x.kind === kind && x.at_ms >= e.at_ms - 8000 && x.at_ms < e.at_ms + 10000);
  const back = all.find((x) => x.node === e.node && (x.kind === "joined" || x.kind === "restarted") && x.at_ms > e.at_ms);
  const takers = after("takeover");
  const lost = after("bereft");
  const pairs = [["noticed", clock(e.at_ms) + ", by " + named(e.by)]];
  pairs.push(["replaced by", replacements(takers)]);
  if (lost.length) pairs.push(["no copy of", lost.map((x) => x.node + ": " + count(x.count)).join(", ") + " partitions"]);
  const degraded = after("degraded").reduce((sum, x) => sum + x.count, 0);
  pairs.push(["degraded", degraded ? some(degraded, "answer") : "no answer"]);
  const v = e.verdict;
  const said = make("p", { class: "verdict" });
  if (!v) {
    said.append(e.text === "agent" ? "an agent owns no keys" : "measuring: the heirs are looked at 4 s after it …");
  } else if (v.keys === 0) {
    said.append("Extra cannot be measured: " + (v.untold ? "the windows of " + some(v.untold, "key") + " had ended meanwhile." :
      "no key was asked for both before and after. What is promised holds per key: min(limit, its rate × 0.1 s)."));
  } else {
    said.append("Extra of the worst key: ", make("b", { class: v.broken ? "bad" : "good" }, count(v.worst)),
      " measured, ", make("b", {}, "≤ " + count(v.promised)), " promised" + (v.broken ? " — BROKEN for " + some(v.broken, "key") : ""));
    pairs.push(["extra in all", some(v.extra, "unit") + ", over " + some(v.keys, "key")],
      ["without an owner", (v.longest_ms ? "at most " + span(v.longest_ms) + " from the last answer of the old owner to the first of the new, of keys asked for often; " : "") +
        some(v.between, "answer") + " between"]);
    const left = [];
    if (v.untold) left.push(some(v.untold, "key") + " with a window that had ended");
    if (v.more) left.push(some(v.more, "key") + " beyond the room");
    if (v.share > 1) left.push("1 in " + v.share + " keys was looked at");
    pairs.push(["how", "what remained by the last answer of the old owner, beside the first of the new, at the doors of " +
      some(v.nodes, "node") + " alive; what only the dead node's door saw is not in it" + (left.length ? ". Left out: " + left.join(", ") : "")]);
  }
  const list = make("dl", {});
  if (back) pairs.push(["back", clock(back.at_ms)]);
  terms(list, pairs);
  const box = make("article", { class: back ? "card back" : "card" }, make("h3", {}, "✕ " + e.node + (back ? " failed, and is back" : " failed")), said, list);
  return box;
}

export function showMissing(names) {
  notice(at("missing"), names.length ? "Without " + names.join(", ") + ": not reached." : "");
}
