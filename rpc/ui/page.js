// The page asks its node every second. Names and keys are put in as text, never as markup: clients choose them.
"use strict";

const at = (id) => document.getElementById(id);
const seconds = 120; // of the curves
let token = sessionStorage.getItem("token") || "";
let rounds = 0; // of refreshing
let last = null; // the counters a moment ago
const curves = { allowed: [], denied: [] };

// ask reads one page of the node. An error says what the node said.
async function ask(path, method) {
  const answer = await fetch(path, { method: method || "GET", headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    at("login").hidden = false;
  }
  if (!answer.ok) {
    throw new Error(body.detail || "the node answered " + answer.status);
  }
  at("login").hidden = true;
  return body;
}

// row makes a row of a table; a cell is a text, a number, or an element.
function row(cells, kind) {
  const tr = document.createElement("tr");
  tr.className = kind || "";
  for (const cell of cells) {
    const td = document.createElement("td");
    if (typeof cell === "number") {
      td.className = "number";
      td.textContent = cell.toLocaleString("en");
    } else {
      td.append(cell);
    }
    tr.append(td);
  }
  return tr;
}

function meter(used, most) {
  const m = document.createElement("meter");
  m.max = Math.max(1, most);
  m.value = used;
  m.high = m.max * 0.8;
  m.title = used + " of " + most;
  return m;
}

// span writes milliseconds for people; less than 0 is never.
function span(ms) {
  if (ms < 0) return "never";
  if (ms < 1000) return ms + " ms";
  const s = Math.round(ms / 1000);
  if (s < 120) return s + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

function showStatus(s) {
  const words = [s.name, s.ready ? "ready" : "not ready", s.active + " of " + s.members + " nodes own keys",
    s.limits + " limits", "up " + span(s.uptime_ms), s.version];
  at("summary").textContent = words.join(" · ");
  at("summary").className = s.ready ? "" : "bad";
  const now = { at: performance.now(), allowed: s.items.allowed, denied: s.items.denied };
  if (last !== null && now.at > last.at) {
    for (const kind of ["allowed", "denied"]) {
      const rate = Math.max(0, (now[kind] - last[kind]) * 1000 / (now.at - last.at));
      curves[kind].push(rate);
      curves[kind].splice(0, curves[kind].length - seconds);
      at(kind + "-now").textContent = Math.round(rate).toLocaleString("en");
    }
    draw();
  }
  last = now;
  const others = [s.items.degraded + " degraded since the start"];
  if (s.unreachable.length > 0) others.push("not reached: " + s.unreachable.join(", "));
  at("others").textContent = others.join(", ");
}

function draw() {
  const most = Math.max(1, ...curves.allowed, ...curves.denied);
  for (const kind of ["allowed", "denied"]) {
    const points = curves[kind].map((rate, i) => {
      const x = (seconds - curves[kind].length + i) * 600 / (seconds - 1);
      return x.toFixed(1) + "," + (118 - 114 * rate / most).toFixed(1);
    });
    at(kind).setAttribute("points", points.join(" "));
  }
}

async function refresh() {
  try {
    showStatus(await ask("/v1/status"));
    const members = await ask("/v1/members");
    at("members").replaceChildren(...members.members.map((m) => {
      const state = m.failed_ago_ms === undefined ? m.state : m.state + " " + span(m.failed_ago_ms) + " ago";
      return row([m.name, state, m.role, m.version || "–", m.http_address || "–", m.grpc_address || "–", m.limits || "–"],
        m.self ? "self" : m.state === "failed" ? "bad" : "");
    }));
    const others = members.limits_disagreeing;
    at("disagreeing").hidden = others.length === 0;
    at("disagreeing").textContent = "Different limits: the files of " + others.join(", ") +
      " say something else than those of this node. Give all nodes the same files.";
    if (rounds++ % 5 === 0) await refreshLimits();
    const top = await ask("/v1/top?count=15");
    at("top").replaceChildren(...top.keys.map((k) =>
      row([k.key, k.name, k.used, meter(k.used, k.limit), span(k.reset_after_ms)])));
  } catch (error) {
    at("summary").textContent = error.message;
    at("summary").className = "bad";
  }
  setTimeout(refresh, document.hidden ? 10000 : 1000);
}

// rule writes a limit in a few words.
function rule(l) {
  const burst = l.burst && l.burst !== l.limit ? ", burst " + l.burst.toLocaleString("en") : "";
  const per = l.per.replace(/m0s$/, "m").replace(/h0m$/, "h");
  return l.limit.toLocaleString("en") + " in " + per + ", " + l.algorithm + burst +
    (l.overrides > 0 ? ", " + l.overrides + " overrides" : "");
}

// origin says where a limit comes from.
function origin(l) {
  if (!l.put) return "file";
  return "put" + (l.over_file ? " over a file" : "") + ", " + l.version + (l.by ? " by " + l.by : "");
}

const limitRows = 50; // that are shown at most: there may be thousands
let limits = [];

function showLimits() {
  const word = at("limit-filter").value;
  const found = limits.filter((l) => l.name.includes(word));
  at("limit-count").textContent = found.length > limitRows
    ? limitRows + " of " + found.length.toLocaleString("en") + " are shown" : found.length + " limits";
  if (at("limits").contains(document.activeElement)) return; // a button that has the focus stays
  at("limits").replaceChildren(...found.slice(0, limitRows).map((l) => {
    const c = l.candidate;
    const cells = [l.name, rule(l), origin(l), l.allowed, l.denied];
    if (!c) return row([...cells, "–", "", "", ""]);
    const button = document.createElement("button");
    button.textContent = "promote";
    button.setAttribute("aria-label", "promote the candidate of " + l.name);
    button.addEventListener("click", () => promote(button, l));
    return row([...cells, rule(c), c.newly_denied, c.newly_allowed, button]);
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
    const done = await ask("/v1/limits/promote?name=" + encodeURIComponent(l.name) +
      (l.version ? "&version=" + encodeURIComponent(l.version) : ""), "POST");
    at("limit-said").textContent = l.name + ": promoted at " + (done.reached + 1) + " nodes, version " + done.version +
      (done.missing.length > 0 ? "; not reached yet: " + done.missing.join(", ") : "");
  } catch (error) {
    at("limit-said").textContent = l.name + ": " + error.message;
  }
  button.blur();
  await refreshLimits();
}

async function refreshLimits() {
  limits = (await ask("/v1/limits")).limits;
  showLimits();
}

at("limit-filter").addEventListener("input", showLimits);
at("limit-search").addEventListener("submit", (event) => event.preventDefault());

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("token", token);
});

at("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = encodeURIComponent(at("key").value);
  const found = [];
  try {
    const d = await ask("/v1/peek?cost=1&limit=" + encodeURIComponent(at("limit").value) + "&key=" + key);
    const place = await ask("/v1/ring?key=" + key);
    found.push(["one more", d.allowed ? "would be allowed" : "would be denied for " + span(d.retry_after_ms)],
      ["remaining", d.remaining + " of " + d.limit], ["as new in", span(d.reset_after_ms)],
      ["owner", place.owner], ["heir", place.heir || "–"], ["partition", String(place.partition)]);
    if (d.degraded) found.push(["degraded", "its owner did not answer"]);
  } catch (error) {
    found.push(["error", error.message]);
  }
  at("found").replaceChildren(...found.flatMap(([word, text]) => {
    const dt = document.createElement("dt");
    const dd = document.createElement("dd");
    dt.textContent = word;
    dd.textContent = text;
    return [dt, dd];
  }));
});

refresh();
