// Limits, rules, keys and holds.
"use strict";

import { ask, query } from "./node.js";
import { at, count, fill, make, row, rule, say, some, span } from "./words.js";
import { open } from "./key.js";

// keyButton opens a key.
function keyButton(limit, key) {
  const b = make("button", { class: "plain", type: "button" }, key);
  b.addEventListener("click", () => open(limit, key));
  return b;
}

// origin says where a limit comes from.
function origin(l) {
  if (!l.put) return "file";
  return "put" + (l.over_file ? " over a file" : "") + ", " + l.version + (l.by ? " by " + l.by : "");
}

export async function refreshLimits() {
  const found = await ask(query("/v1/cluster/limits", { search: at("limit-filter").value, by: at("limit-order").value, count: 50 }));
  say(at("limit-count"), found.found > found.limits.length
    ? found.limits.length + " of " + count(found.found) + " are shown" : count(found.found) + " of " + some(found.all, "limit"));
  fill(at("limits"), found.limits.map((l) => {
    const hot = make("span", {});
    l.heavy.forEach((k, i) => hot.append(i ? ", " : "", keyButton(l.name, k.key), " " + count(k.checks)));
    const cells = [l.name, rule(l), origin(l), l.allowed, l.denied, l.beyond, l.degraded, l.heavy.length ? hot : "–"];
    const c = l.candidate;
    if (!c) return row([...cells, "–", "", "", "", ""]);
    const refused = make("span", {});
    l.newly_denied_keys.forEach((k, i) => refused.append(i ? ", " : "", keyButton(l.name, k.key), " " + count(k.checks)));
    const button = make("button", { "aria-label": "promote the candidate of " + l.name }, "promote");
    button.addEventListener("click", () => promote(button, l));
    return row([...cells, rule(c), c.newly_denied, l.newly_denied_keys.length ? refused : "–", c.newly_allowed, button]);
  }));
}

// promote asks once more, then puts the candidate in the limit's place at all nodes.
async function promote(button, l) {
  if (button.textContent === "promote") {
    button.textContent = "promote at all nodes?";
    return;
  }
  button.disabled = true;
  try {
    const done = await ask(query("/v1/limits/promote", l.version ? { name: l.name, version: l.version } : { name: l.name }), "POST");
    say(at("limit-said"), l.name + ": promoted at " + (done.reached + 1) + " nodes, version " + done.version +
      (done.missing.length > 0 ? "; not reached yet: " + done.missing.join(", ") : ""));
  } catch (error) {
    say(at("limit-said"), l.name + ": " + error.message);
  }
  button.blur();
  await refreshLimits();
}

export async function refreshRules() {
  const found = await ask(query("/v1/cluster/rules", { search: at("rule-filter").value, count: 50 }));
  say(at("rule-count"), found.found > found.rules.length
    ? found.rules.length + " of " + count(found.found) + " are shown" : count(found.found) + " of " + some(found.all, "rule"));
  fill(at("rules"), found.rules.map((r) => {
    const match = Object.entries(r.match || {}).map(([k, v]) => k + ": " + v.join(" or ")).join("; ") || "anything";
    const apply = r.unlimited ? "no limit at all" : (r.apply || []).map((a) => a.limit + " for " + a.key).join("; ");
    return row([r.name || "–", match, apply]);
  }));
}

export async function refreshKeys() {
  const heavy = await ask("/v1/cluster/heavy?count=15");
  fill(at("heavy"), heavy.keys.map((k) => row([keyButton(k.limit, k.key), k.limit, k.checks, k.over, k.denied])));
  say(at("heavy-note"), count(heavy.total) + " checks within the last " + span(heavy.seconds * 1000) +
    ". Never too low; a key that is not here has at most " + count(Math.max(heavy.unseen, 0)) + "." +
    (heavy.sampled > 1 ? " Of the checks 1 in " + heavy.sampled + " was looked at, so these are estimates." : ""));
  const top = await ask("/v1/cluster/top?count=15");
  fill(at("top"), top.keys.map((k) => row([keyButton(k.name, k.key), k.name, k.used, k.limit, span(k.reset_after_ms), k.owner])));
}

export async function refreshHolds() {
  const found = await ask("/v1/cluster/holds?count=20");
  say(at("holds-count"), found.there === 0 ? "There are none." : found.holds.length + " of " + count(found.there) + ".");
  fill(at("holds"), found.holds.map((h) => row([keyButton(h.name, h.key), h.name, h.holder, h.units, span(h.left_ms), h.node])));
}

async function searchKeys(event) {
  event.preventDefault();
  try {
    const limit = at("prefix-limit").value;
    const found = await ask(query("/v1/cluster/keys", { prefix: at("prefix").value, count: 50, ...(limit ? { limit } : {}) }));
    say(at("key-count"), some(found.keys.length, "key") + (found.partial ? "; there may be more, a longer beginning finds them" : "") +
      (found.missing.length ? "; without " + found.missing.join(", ") : ""));
    at("keys").replaceChildren(...found.keys.map((k) => row([keyButton(k.name, k.key), k.name, k.used + " of " + k.limit, k.owner])));
  } catch (error) {
    say(at("key-count"), error.message);
  }
}

// soon calls what is asked for when a reader has stopped typing.
function soon(what) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => what().catch(() => {}), 200);
  };
}

at("limit-filter").addEventListener("input", soon(refreshLimits));
at("limit-order").addEventListener("change", soon(refreshLimits));
at("rule-filter").addEventListener("input", soon(refreshRules));
at("key-search").addEventListener("submit", searchKeys);
for (const id of ["limit-search", "rule-search"]) at(id).addEventListener("submit", (event) => event.preventDefault());
