// How the page asks its node.
"use strict";

import { at } from "./words.js";

let token = sessionStorage.getItem("token") || "";

export function setToken(text) {
  token = text;
  sessionStorage.setItem("token", text);
}

const headers = () => (token ? { Authorization: "Bearer " + token } : {});

// refusal is the error that an answer is.
async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401) at("login").hidden = false;
  const error = new Error(body.detail || "the node answered " + answer.status);
  error.status = answer.status;
  return error;
}

// ask reads one page of the node. An error says what the node said.
export async function ask(path, method, body) {
  const answer = await fetch(path, {
    method: method || "GET", cache: "no-store",
    headers: body ? { ...headers(), "Content-Type": "application/json" } : headers(),
    body: body ? JSON.stringify(body) : undefined,
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export const query = (path, values) => path + "?" + new URLSearchParams(values);

// listen calls told with each event of a stream until that ends. The browser's own EventSource could
// not send a token.
export async function listen(path, signal, told) {
  const answer = await fetch(path, { headers: headers(), cache: "no-store", signal });
  if (!answer.ok) throw await refusal(answer);
  at("login").hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const kind = lines.find((l) => l.startsWith("event: "));
      const data = lines.find((l) => l.startsWith("data: "));
      if (kind && data) told(kind.slice(7), JSON.parse(data.slice(6)));
    }
  }
}
