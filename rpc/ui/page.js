// The page listens to its node, and asks it every few seconds for what is not told by itself.
"use strict";

import { listen, setToken, ask, query } from "./node.js";
import { at, count, fill, large, make, notice, row, say, some, span } from "./words.js";
import * as graph from "./graph.js";
import * as failures from "./failures.js";
import * as ring from "./ring.js";
import { refreshHolds, refreshKeys, refreshLimits, refreshRules } from "./tables.js";
import { refreshKey } from "./key.js";

let stream = null; // AbortController of what is listened to
let before = new Map(); // by boot: counts of a node, and when
let others = []; // addresses of the pages of other nodes, as they were heard of last

function showState(s) {
  const active = s.nodes.filter((n) => n.state === "active" && n.role === "member").length;
  const members = s.nodes.filter((n) => n.role === "member" && n.state !== "failed").length;
  say(at("summary"), [s.node, s.ready ? "ready" : "not ready", active + " of " + members + " nodes own keys", some(s.limits, "limit"), s.version].join(" · "));
  at("summary").className = s.ready ? "" : "bad";
  notice(at("lost"), s.lost ? "A majority is lost, so on_partition decides: " + s.lost + "." : "");
  notice(at("disagreeing"), s.limits_disagreeing.length ? "Different limits: the files of " + s.limits_disagreeing.join(", ") +
    " say something else than those of this node. Give all nodes the same files." : "");
  failures.showMissing(s.nodes.filter((n) => !n.answered && n.state !== "failed").map((n) => n.name));
  others = s.nodes.filter((n) => !n.self && n.state === "active" && n.http_address).map((n) => n.http_address);
  showTiles(s, active, members);
  showNodes(s);
  if (s.ring && s.ring !== ring.ringName()) ask("/v1/cluster/ring").then((r) => ring.setRing(r)).catch(() => {});
}

function showTiles(s, active, members) {
  const rates = graph.latest();
  const sum = (of) => s.nodes.reduce((n, x) => n + (x.pulse && x.answered ? x.pulse[of] : 0), 0);
  const lag = s.nodes.reduce((n, x) => x.pulse && x.answered ? Math.max(n, x.pulse.lag_ms) : n, 0);
  const tiles = [["allowed a second", count(rates.allowed)], ["denied a second", count(rates.denied)],
    ["of these beyond a limit", count(rates.beyond)], ["degraded a second", count(rates.degraded)],
    ["nodes that own keys", active + " of " + members], ["partitions without a copy", count(sum("unreplicated"))],
    ["waits longest to be copied", lag ? span(lag) : "–"],
    ["allowed by these nodes", large(sum("allowed"))], ["denied by these nodes", large(sum("denied"))]];
  if (at("tiles").children.length !== tiles.length) {
    at("tiles").replaceChildren(...tiles.map(([name]) => make("div", { class: "tile" }, make("b", {}), make("span", {}, name))));
  }
  tiles.forEach(([, value], i) => say(at("tiles").children[i].firstChild, value));
}

function showNodes(s) {
  const now = new Map();
  fill(at("members"), s.nodes.map((n) => {
    const p = n.pulse && n.answered ? n.pulse : null;
    let rate = NaN;
    if (p) {
      now.set(n.boot, { sum: p.allowed + p.denied, at: s.now_ms - n.silent_ms });
      const old = before.get(n.boot);
      const seconds = old ? (s.now_ms - n.silent_ms - old.at) / 1000 : 0;
      if (old && seconds < 0.5) {
        now.set(n.boot, old);
        rate = old.rate === undefined ? NaN : old.rate;
      } else if (old) {
        rate = Math.max(0, (p.allowed + p.denied - old.sum) / seconds);
        now.get(n.boot).rate = rate;
      }
    }
    const name = make("button", { class: "plain", type: "button", "aria-pressed": String(ring.isChosen(n.name)) }, n.name);
    name.addEventListener("click", () => {
      ring.choose(n.name);
      name.setAttribute("aria-pressed", String(ring.isChosen(n.name)));
    });
    const state = n.failed_ago_ms === undefined ? n.state : "✕ " + n.state + " " + span(n.failed_ago_ms) + " ago";
    return row([name, state, n.role, rate, p ? ring.owned(n.name) : NaN, p ? p.held : NaN, p ? p.kept : NaN, p ? p.unreplicated : NaN,
      n.version || "–", n.http_address || "–"], n.self ? "self" : n.state === "failed" ? "bad" : "");
  }));
  before = now;
}

const tellers = {
  rows: (r) => graph.take(r),
  state: (s) => { showState(s); graph.show(); },
  events: (list) => { failures.take(list); graph.show(); },
  leaving: (l) => showOthers("This node is leaving its cluster.", l.others),
};

// showOthers says that this node is gone, or will be, and where to go on.
function showOthers(why, addresses) {
  const links = addresses.flatMap((address, i) => [i ? ", " : "", make("a", { href: location.protocol + "//" + address + "/ui/" }, address)]);
  at("leaving").hidden = false;
  at("leaving").replaceChildren(why + " Pages of others: ", ...(links.length ? links : ["none is known"]), ".");
}

// follow listens for ever, and begins anew when the stream ends.
async function follow() {
  for (let pause = 1000; ; pause = Math.min(8000, pause * 1.5)) {
    stream = new AbortController();
    let chosen = false;
    stream.signal.addEventListener("abort", () => { chosen = stream.signal.reason === "other"; });
    try {
      graph.begin();
      failures.begin();
      const span = document.querySelector("input[name=span]:checked").value;
      await listen(query("/v1/cluster/watch", { span }), stream.signal, (kind, data) => {
        pause = 1000;
        if (kind !== "leaving") at("leaving").hidden = true;
        if (tellers[kind]) tellers[kind](data);
      });
    } catch (error) {
      if (!chosen) {
        // A status is an answer. Without one, the connection has failed or was cut.
        if (error.status === undefined && others.length > 0 && at("leaving").hidden) {
          showOthers("This node does not answer any more; what you see is older.", others);
        }
        say(at("summary"), error.message || String(error));
        at("summary").className = "bad";
      }
    }
    if (!chosen) await new Promise((done) => { setTimeout(done, pause); });
    while (document.hidden) await new Promise((done) => { setTimeout(done, 500); });
  }
}

let next = 0; // the timer of the next refresh: however often a token is given, there is one

// refresh asks for the tables, one after the other, while the page is seen.
async function refresh() {
  for (const what of [refreshLimits, refreshKeys, refreshHolds, refreshRules, refreshKey]) {
    if (!document.hidden) await what().catch(() => {});
  }
  clearTimeout(next);
  next = setTimeout(refresh, 4000);
}

const again = () => { if (stream) stream.abort("other"); };
document.querySelectorAll("input[name=span]").forEach((e) => e.addEventListener("change", again));
document.addEventListener("visibilitychange", () => { if (document.hidden) again(); });
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(at("token").value);
  again();
  refresh();
});

follow();
refresh();
