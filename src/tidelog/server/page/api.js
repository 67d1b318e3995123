// The service, as calls. Every refusal becomes a `Problem` with the server's own sentence; a missing token is asked for
// once, kept for this tab only, and the call is made again.

import { parse, stringify } from "./exact.js";

const TOKEN = "tidelog.token";
let asking = null;
let declined = false;
let askToken = async () => "";

export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** `prompt(reason)` answers with a token, or with "" when the person gives up. */
export function onUnauthorised(prompt) {
  askToken = prompt;
}

export function authorisation() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export async function renew(used) {
  if (authorisation().Authorization !== used) return true; // somebody has asked meanwhile
  if (declined) return false;
  asking ??= askToken(used ? "The server did not accept this token." : "").finally(() => (asking = null));
  const token = await asking;
  declined = !token;
  if (token) sessionStorage.setItem(TOKEN, token);
  return Boolean(token);
}

/** After the person gave up once, nobody asks until something is tried anew. */
export function askAgain() {
  declined = false;
}

async function send(method, path, body, signal) {
  const headers = { Accept: "application/json", ...authorisation() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(
      "The service can't be reached. Check that `tidelog server` runs; this page tries again by itself.",
    );
  }
  if (answer.status === 401 && (await renew(headers.Authorization))) return send(method, path, body, signal);
  const text = await answer.text();
  if (!answer.ok) throw new Problem(sentence(text, answer), answer.status);
  return text ? read(text, path) : null;
}

function read(text, path) {
  try {
    return /\d{16}/.test(text) ? parse(text) : JSON.parse(text);
  } catch {
    throw new Problem(`The answer of ${path} is not JSON. Is a proxy between this page and the service?`);
  }
}

function sentence(text, answer) {
  try {
    const told = JSON.parse(text).message;
    if (typeof told === "string" && told) return told;
  } catch {
    // not ours: a proxy's page, say; the status is what can be told
  }
  if (answer.status === 401) return "A token is needed. Reload the page to enter one.";
  return `The service answered ${answer.status} ${answer.statusText}.`.replace(" .", ".");
}

const part = encodeURIComponent;
const of = (name) => `/connectors/${part(name)}`;
const plugin = (name) => `/connector-plugins/${part(name)}`;

export const api = {
  version: () => send("GET", "/"),
  connectors: () => send("GET", "/connectors?expand=status&expand=info"),
  create: (name, config, state) => send("POST", "/connectors", { name, config, initial_state: state }),
  info: (name) => send("GET", of(name)),
  status: (name) => send("GET", `${of(name)}/status`),
  remove: (name) => send("DELETE", of(name)),
  pause: (name) => send("PUT", `${of(name)}/pause`),
  resume: (name) => send("PUT", `${of(name)}/resume`),
  stop: (name) => send("PUT", `${of(name)}/stop`),
  restart: (name) => send("POST", `${of(name)}/restart`),

  tables: (name) => send("GET", `${of(name)}/tables`),
  metrics: (name) => send("GET", `${of(name)}/metrics`),
  metricsHistory: (name, seconds) => send("GET", `${of(name)}/metrics/history?seconds=${seconds}`),
  notifications: (name, limit = 50) => send("GET", `${of(name)}/notifications?limit=${limit}`),

  snapshots: (name) => send("GET", `${of(name)}/snapshots`),
  startSnapshot: (name, asked) => send("POST", `${of(name)}/snapshots`, asked),
  steerSnapshot: (name, verb, tables) => send("PUT", `${of(name)}/snapshots/${verb}`, tables ? { tables } : {}),

  offsets: (name) => send("GET", `${of(name)}/offsets`),
  previewOffsets: (name, offsets, signal) => send("POST", `${of(name)}/offsets/preview`, { offsets }, signal),
  setOffsets: (name, offsets, why) => send("PATCH", `${of(name)}/offsets`, { offsets, why }),
  importOffsets: (name, offsets, why) => send("POST", `${of(name)}/offsets/import`, { offsets, why }),
  deleteOffsets: (name, why) => send("DELETE", `${of(name)}/offsets?why=${part(why)}`),
  undoOffsets: (name, why) => send("POST", `${of(name)}/offsets/undo`, { why }),
  offsetHistory: (name, before) =>
    send("GET", `${of(name)}/offsets/history?limit=20${before ? `&before=${part(before)}` : ""}`),
  exportOffsets: (name) => send("GET", `${of(name)}/offsets/export`),

  plugins: () => send("GET", "/connector-plugins"),
  offsetSchema: (name) => send("GET", `${plugin(name)}/offset-schema`),
  settings: (name) => send("GET", `${plugin(name)}/config`),
  validate: (name, config, signal) => send("PUT", `${plugin(name)}/config/validate`, config, signal),
  check: (name, config) => send("POST", `${plugin(name)}/check`, { config }),
};
