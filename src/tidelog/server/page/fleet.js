// What the page knows of all connectors: configuration, state, latest figures and a short past of them. Views read it and
// are told when it changes; events only say what to read again, so a lost one does no harm.

import { api } from "./api.js";
import { instant } from "./format.js";
import { listen } from "./live.js";

const PAST_MS = 15 * 60 * 1000;
const SERIES = ["lag_ms", "events_per_second", "journal_bytes"];

const known = new Map(); // name -> {name, plugin, config, state, trace, metrics, past, snapshot}
const recalled = new Set();
const listeners = new Set();
let loaded = false;
let failed = null;
let running = null;

export const connectors = () => [...known.values()].sort((a, b) => a.name.localeCompare(b.name));
export const connector = (name) => known.get(name);
export const trouble = () => failed;
export const isLoaded = () => loaded;

/** `listener(name | null)`: null when any may have changed. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed(name = null) {
  for (const listener of [...listeners]) listener(name);
}

/** Reads everything; calls that come meanwhile share the answer. */
export function refresh() {
  running ??= load().finally(() => (running = null));
  return running;
}

async function load() {
  try {
    const found = await api.connectors();
    for (const name of known.keys()) if (!(name in found)) known.delete(name);
    for (const [name, about] of Object.entries(found)) place(name, about);
    [failed, loaded] = [null, true];
    changed();
    await Promise.all(Object.keys(found).map(figures));
    changed();
    await Promise.all(
      Object.keys(found)
        .filter((name) => !recalled.has(name))
        .map((name) => recall(name, 120)),
    );
  } catch (error) {
    failed = error;
  }
  changed();
}

function place(name, { status, info }) {
  const old = known.get(name) ?? { name, metrics: {}, past: emptyPast(), snapshot: null };
  const config = info?.config ?? old.config ?? {};
  known.set(name, { ...old, config, plugin: config["connector.class"] ?? "", ...stateOf(status) });
}

const emptyPast = () => Object.fromEntries(SERIES.map((key) => [key, []]));

function stateOf(status) {
  const task = status?.tasks?.[0];
  const whole = status?.connector ?? {};
  const broken = task?.state === "FAILED";
  return {
    state: broken ? "FAILED" : (whole.state ?? ""),
    trace: whole.trace ?? task?.trace ?? "",
    worker: whole.worker_id ?? "",
  };
}

async function figures(name) {
  const [metrics, snapshot] = await Promise.allSettled([api.metrics(name), api.snapshots(name)]);
  if (metrics.status === "fulfilled") measured(name, metrics.value ?? {});
  const about = known.get(name);
  if (about && snapshot.status === "fulfilled") about.snapshot = snapshot.value;
}

function measured(name, metrics) {
  const about = known.get(name);
  if (!about) return;
  about.metrics = { ...about.metrics, ...metrics };
  const at = instant(metrics.at ?? metrics.at_ms) ?? Date.now();
  const still = about.state !== "RUNNING"; // nothing flows: a zero would be a lie
  if (still) about.metrics = { ...about.metrics, lag_ms: null, events_per_second: null, lag_bytes: null };
  const waits = metrics.unreachable_since_ms || metrics.waits_for;
  if (waits) about.metrics = { ...about.metrics, lag_ms: null, lag_bytes: null }; // not known
  for (const key of SERIES) append(about.past[key], at, about.metrics[key] ?? null);
}

function append(points, at, value) {
  if (points.length && at <= points.at(-1)[0]) return;
  points.push([at, value]);
  while (points[0][0] < at - PAST_MS) points.shift();
}

/** Fetches the past that was before this page was opened. */
export async function recall(name, seconds = 600) {
  recalled.add(name);
  const answer = await api.metricsHistory(name, seconds);
  const about = known.get(name);
  const rows = Array.isArray(answer) ? answer : (answer?.points ?? []);
  if (!about) return;
  for (const key of SERIES) {
    const told = rows.map((row) => [instant(row.at ?? row.at_ms), row[key] ?? null]).filter(([at]) => at !== null);
    const first = about.past[key].find(([at]) => at > (told.at(-1)?.[0] ?? 0))?.[0] ?? Infinity;
    about.past[key] = [...told, ...about.past[key].filter(([at]) => at >= first)];
  }
  changed(name);
}

export async function refreshStatus(name) {
  const status = await api.status(name);
  if (!known.has(name)) return refresh();
  Object.assign(known.get(name), stateOf(status));
  return changed(name);
}

export async function refreshSnapshot(name) {
  const snapshot = await api.snapshots(name);
  if (known.has(name)) known.get(name).snapshot = snapshot;
  changed(name);
}

/** One reading at a time per thing; what comes meanwhile asks for one more. */
const busy = new Map();
function soon(key, work) {
  if (busy.has(key)) return void busy.set(key, true);
  busy.set(key, false);
  const done = () => {
    const again = busy.get(key);
    busy.delete(key);
    if (again) soon(key, work);
  };
  work()
    .catch(() => refresh())
    .finally(() => setTimeout(done, 400));
}

export function startFleet() {
  listen(({ type, connector: name, data }) => {
    if (type === "poll") refresh();
    else if (type === "metrics" && known.has(name)) (measured(name, data.metrics ?? data), changed(name));
    else if (type === "status") soon(`status ${name}`, () => (known.has(name) ? refreshStatus(name) : refresh()));
    else if (type === "snapshot" && known.has(name)) soon(`snapshot ${name}`, () => refreshSnapshot(name));
  });
  refresh();
}
