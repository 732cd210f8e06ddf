// One key: where it lives, how it is, and the latest answers about it.
"use strict";

import { ask, query } from "./node.js";
import { at, clock, count, row, say, span, terms } from "./words.js";

let current = null; // {limit, key}

export function open(limit, key) {
  at("limit").value = limit;
  at("key").value = key;
  at("a-key").scrollIntoView();
  at("key").focus();
  look(limit, key);
}

export async function refreshKey() {
  if (current) await show(current);
}

async function look(limit, key) {
  current = { limit, key };
  say(at("key-said"), "");
  try {
    await show(current);
  } catch (error) {
    current = null;
    at("reset").hidden = true;
    at("answers-head").hidden = true;
    at("answers").replaceChildren();
    say(at("answers-note"), "");
    terms(at("found"), [["error", error.message]]);
  }
}

async function show(wanted) {
  const k = await ask(query("/v1/cluster/key", wanted));
  if (wanted !== current) return;
  const d = k.decision;
  const pairs = [["one more", d.allowed ? "would be allowed" : "would be denied for " + span(d.retry_after_ms)],
    ["remaining", count(d.remaining) + " of " + count(d.limit)], ["as new in", span(d.reset_after_ms)],
    ["owner", k.owner || "–"], ["heir, with a copy", k.heir || "–"], ["partition", String(k.partition)]];
  if (d.degraded) pairs.push(["degraded", "decided under less than the full promise"]);
  terms(at("found"), pairs);
  at("reset").hidden = !k.may_reset;
  at("answers-head").hidden = k.answers.length === 0;
  at("answers").replaceChildren(...k.answers.map((a) => row([
    clock(a.at_ms), a.door + (a.op === "check" ? "" : ", " + a.op), a.cost,
    (a.allowed ? (a.beyond ? "allowed beyond the limit" : "allowed") : "denied") + (a.degraded ? ", degraded" : "") +
      (!a.allowed && a.retry_after_ms > 0 ? ", again in " + span(a.retry_after_ms) : ""),
    a.remaining, a.owner + " (" + a.source + ")"], a.allowed ? "" : "bad")));
  say(at("answers-note"), (k.answers.length === 0 ? "No answer about it is remembered. " : "") +
    (k.share > 1 ? "The nodes are busy: they remember answers of 1 in " + k.share + " keys, and of this one for ten minutes from now on. " : "") +
    (k.missing.length ? "Without " + k.missing.join(", ") + "." : ""));
}

// reset asks once more.
async function reset() {
  const button = at("reset");
  if (!current) return;
  if (button.textContent === "Reset the key") {
    button.textContent = "Really: it is as new then";
    return;
  }
  button.textContent = "Reset the key";
  try {
    await ask("/v1/reset", "POST", current);
    say(at("key-said"), "The key was reset.");
    await show(current);
  } catch (error) {
    say(at("key-said"), error.message);
  }
}

at("reset").addEventListener("click", reset);
at("reset").addEventListener("blur", () => { at("reset").textContent = "Reset the key"; });
at("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  look(at("limit").value, at("key").value);
});
