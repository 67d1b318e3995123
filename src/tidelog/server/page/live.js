// What happens in the service, as it happens. One stream of events serves the whole page; it is read with fetch, because
// an EventSource can't carry a token. When it breaks, the page says so, tries again ever more slowly, and asks by itself
// meanwhile: listeners get a `poll` and read what they show.

import { askAgain, authorisation, renew } from "./api.js";

const FIRST_MS = 500;
const LAST_MS = 10000;
const POLL_MS = 3000;
const SILENT_MS = 45000;

const listeners = new Set();
const watchers = new Set();
let link = { state: "connecting", since: Date.now(), retryAt: 0 };
let wake = null;

/** `listener({type, connector, data})`; type is `poll` when everything may have changed. Returns what ends it. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** `watcher({state: "connecting" | "live" | "lost", retryAt})`, at once and after each change. */
export function watchLink(watcher) {
  watchers.add(watcher);
  watcher(link);
}

export function retryNow() {
  askAgain();
  wake?.();
}

export async function start() {
  setInterval(poll, POLL_MS);
  addEventListener("online", retryNow);
  let wait = FIRST_MS;
  for (;;) {
    const opened = await follow();
    wait = opened ? FIRST_MS : Math.min(LAST_MS, wait * 2);
    become("lost", Date.now() + wait);
    await pause(wait);
  }
}

function poll() {
  if (link.state === "lost" && !document.hidden) tell({ type: "poll" });
}

function pause(ms) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    wake = () => (clearTimeout(timer), done());
  });
}

function become(state, retryAt = 0) {
  const since = link.state === state ? link.since : Date.now();
  link = { state, since, retryAt };
  for (const watcher of watchers) watcher(link);
}

function tell(event) {
  for (const listener of [...listeners]) listener(event);
}

/** Reads one connection to its end; answers whether it was open at all. */
async function follow() {
  const headers = { Accept: "text/event-stream", ...authorisation() };
  const abort = new AbortController();
  let opened = false;
  let silence = 0;
  const heard = () => (clearTimeout(silence), (silence = setTimeout(() => abort.abort(), SILENT_MS)));
  try {
    const answer = await fetch("/events", { headers, signal: abort.signal, cache: "no-store" });
    if (answer.status === 401) await renew(headers.Authorization);
    if (!answer.ok) return false;
    opened = true;
    become("live");
    tell({ type: "poll" }); // what was missed while nobody listened
    for await (const text of pieces(answer.body, heard)) dispatch(text);
  } catch {
    // a broken connection is what the caller shows and mends
  } finally {
    clearTimeout(silence);
  }
  return opened;
}

async function* pieces(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    heard();
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r\n\r\n|\n\n|\r\r/);
    rest = parts.pop();
    yield* parts;
  }
}

function dispatch(text) {
  const lines = text.split(/\r\n|\n|\r/);
  const field = (name) =>
    lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
  const data = field("data").join("\n");
  if (!data) return; // a comment: the server's sign of life
  let read;
  try {
    read = JSON.parse(data);
  } catch {
    return; // torn by a proxy; the next event, or the next poll, brings the state
  }
  tell({ type: field("event")[0] ?? "message", connector: read.connector, data: read });
}
