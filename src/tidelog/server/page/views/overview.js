// What a connector does right now: figures over the last ten minutes, its snapshot, its tables and what it has told.

import { api } from "../api.js";
import { chart } from "../charts.js";
import { fillWith, h, keyed, say, toggle } from "../dom.js";
import { stringify } from "../exact.js";
import * as fleet from "../fleet.js";
import { bytes, compact, DASH, milliseconds, number, rate, time } from "../format.js";
import { listen } from "../live.js";
import { button, empty, failure, note, panel, skeleton, toast } from "../parts.js";
import { reading } from "../readings.js";
import { endedList, progress, snapshotPicture } from "../snapshot.js";
import { askSnapshot } from "../snapshot_dialog.js";

const MANY = 12;

export function overviewView(root, name) {
  const charts = {
    lag_ms: chart({ title: "Lag", name: "lag", unit: milliseconds, kind: "time" }),
    events_per_second: chart({ title: "Events per second", name: "rate", unit: rate }),
    journal_bytes: chart({ title: "Journal size", name: "journal", unit: bytes, kind: "size" }),
  };
  const warnings = h("div.warnings");
  const facts = factsList();
  const snapshot = snapshotPanel(name);
  const tables = tablesPanel(name);
  const told = toldPanel(name);
  root.append(
    warnings,
    h(
      "div.charts",
      Object.values(charts).map((each) => each.element),
    ),
    facts.element,
    snapshot.element,
    h("div.columns", tables.element, told.element),
  );

  function draw(changed = null) {
    const about = fleet.connector(name);
    if (!about || (changed !== null && changed !== name)) return;
    for (const [key, each] of Object.entries(charts)) each.update(about.past[key]);
    facts.update(about);
    snapshot.update(about);
    keyed(
      warnings,
      about.metrics.warnings ?? [],
      (text) => text,
      (text) => ({ element: note("warning", h("p", text)) }),
    );
  }

  const offs = [
    fleet.onChange(draw),
    listen((event) => {
      if (event.type === "poll") told.load();
      if (event.type === "notification" && event.connector === name) told.add(event.data);
      if (event.type === "poll" || (event.connector === name && event.type === "snapshot")) tables.later();
    }),
  ];
  const timers = [setInterval(draw, 5000), setInterval(tables.load, 30000)];
  draw();
  fleet.recall(name).catch((error) => toast(error.message, "error"));
  tables.load();
  told.load();
  return {
    stop: () => (
      offs.forEach((off) => off()),
      timers.forEach(clearInterval),
      Object.values(charts).forEach((each) => each.stop())
    ),
  };
}

const FACTS = [
  [
    "position",
    "Position",
    (m, plugin) => (m.position ? reading(plugin, "lsn", m.position) || place(m.position) : DASH),
  ],
  ["events_total", "Events in all", (m) => number(m.events_total)],
  ["lag_bytes", "Log behind", (m) => bytes(m.lag_bytes)],
  [
    "batch_id",
    "Last batch",
    (m) => (m.batch_id === null || m.batch_id === undefined || m.batch_id < 0 ? DASH : `#${number(m.batch_id)}`),
  ],
  ["batch_ms", "Its duration", (m) => (m.batch_id >= 0 ? milliseconds(m.batch_ms) : DASH)],
];

const place = (position) =>
  position === null || position === undefined || position === ""
    ? DASH
    : typeof position === "object"
      ? stringify(position)
      : String(position);

function factsList() {
  const values = FACTS.map(([key]) => h("dd", { "data-value": key }));
  const element = h(
    "dl.facts",
    FACTS.map(([, title], i) => h("div", h("dt", title), values[i])),
  );
  return {
    element,
    update: ({ metrics, plugin }) => FACTS.forEach(([, , read], i) => say(values[i], read(metrics, plugin))),
  };
}

function snapshotPanel(name) {
  const steer = async (verb, table) => {
    await api.steerSnapshot(name, verb, table ? [table] : undefined);
    toast(SAID[verb]);
    await fleet.refreshSnapshot(name);
  };
  const stop = (verb, table) => steer(verb, table).catch((error) => toast(error.message, "error"));
  const buttons = {
    start: button("Start a snapshot", () => askSnapshot(name), { "data-action": "snapshot-start" }),
    pause: button("Pause", () => steer("pause"), {
      "data-action": "snapshot-pause",
      "aria-label": "Pause the snapshot",
    }),
    resume: button("Resume", () => steer("resume"), {
      class: "primary",
      "data-action": "snapshot-resume",
      "aria-label": "Resume the snapshot",
    }),
    stop: button("Stop", () => steer("stop"), { "data-action": "snapshot-stop", "aria-label": "Stop the snapshot" }),
  };
  const drawn = snapshotPicture(stop);
  const none = empty(
    "No snapshot runs.",
    "The initial one runs by itself at the first start. Ask for another one to read tables again beside the stream, whole or filtered.",
  );
  const ended = h("div");
  const element = panel(
    "Snapshot",
    { name: "snapshot", extra: h("div.row", Object.values(buttons)) },
    drawn.element,
    none,
    ended,
  );
  let endedKey = "";
  function update({ state, snapshot }) {
    const whole = progress(snapshot);
    drawn.update(snapshot);
    none.hidden = Boolean(whole);
    buttons.pause.hidden = !whole || snapshot.paused;
    buttons.resume.hidden = !whole || !snapshot.paused;
    buttons.stop.hidden = !whole;
    toggle(element, "data-running", whole && state === "RUNNING" && !snapshot.paused ? "yes" : null);
    const key = stringify(snapshot?.ended ?? []);
    if (key !== endedKey) fillWith(ended, endedList(snapshot?.ended));
    endedKey = key;
  }
  return { element, update };
}

const SAID = {
  pause: "The snapshot is pausing; the stream goes on.",
  resume: "The snapshot goes on.",
  stop: "The snapshot is stopping; rows that it has delivered stay.",
};

function tablesPanel(name) {
  const search = h("input", {
    type: "search",
    placeholder: "Find a table",
    "aria-label": "Find a table",
    hidden: true,
  });
  const rows = h("tbody");
  const table = h(
    "table.list",
    { "aria-label": "Captured tables", hidden: true },
    h(
      "thead",
      h(
        "tr",
        h("th", { scope: "col" }, "Table"),
        h("th.right", { scope: "col" }, "Events"),
        h("th.right", { scope: "col" }, "Rows"),
      ),
    ),
    rows,
  );
  const note_ = h("div", skeleton(4));
  const element = panel(
    "Tables",
    { name: "tables", extra: search },
    h("div.scroll", { tabindex: "0", role: "group", "aria-label": "List of tables" }, table),
    note_,
  );
  let all = [];
  let why = "";
  let timer = 0;

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const shown = all.filter((each) => each.name.toLowerCase().includes(wanted));
    search.hidden = all.length < MANY;
    table.hidden = !shown.length;
    keyed(rows, shown, (each) => each.name, tableRow);
    fillWith(
      note_,
      why && note("warning", h("p", why)),
      !all.length && why
        ? null
        : !all.length
          ? empty(
              "No tables yet.",
              "They appear once the connector has looked at its source: start it, and check table.include.list under Configuration.",
            )
          : !shown.length && h("p.hint", "No table matches."),
    );
  }

  async function load() {
    try {
      const answer = await api.tables(name);
      [all, why] = [answer.tables ?? [], answer.message ?? ""];
      draw();
    } catch (error) {
      if (!all.length) fillWith(note_, failure(error, load));
    }
  }

  search.addEventListener("input", draw);
  const later = () => (clearTimeout(timer), (timer = setTimeout(load, 1500)));
  return { element, load, later };
}

function tableRow(first) {
  const events = h("td.right");
  const rows = h("td.right");
  const undelivered = h("p.hint", { hidden: true });
  const element = h("tr", { "data-table": first.name }, h("td.break", first.name, undelivered), events, rows);
  const update = (table) => {
    say(events, number(table.events));
    say(rows, number(table.rows));
    const letters = table.undecodable ? `${number(table.undecodable)} records could not be decoded.` : "";
    say(undelivered, [table.set_aside && `Set aside: ${table.set_aside}`, letters].filter(Boolean).join(" "));
    undelivered.hidden = !table.set_aside && !letters;
  };
  return { element, update };
}

const KINDS = { COMPLETED: "ok", TABLE_SCAN_COMPLETED: "ok", ABORTED: "warning", SKIPPED: "warning", MALFORMED: "warning" };

function toldPanel(name) {
  const list = h("ol.told", { "aria-label": "Notifications, newest first" });
  const note_ = h("div", skeleton(4));
  const element = panel(
    "Notifications",
    { name: "notifications" },
    h("div.scroll", { tabindex: "0", role: "group", "aria-label": "List of notifications" }, list),
    note_,
  );

  let all = [];
  function show(next) {
    all = latest(next);
    keyed(list, all, (each) => each.number, toldLine);
    fillWith(
      note_,
      !all.length && empty("Nothing was told yet.", "Snapshots tell here when they start, get on and end."),
    );
  }

  async function load() {
    try {
      show((await api.notifications(name, 300)).notifications ?? []);
    } catch (error) {
      if (!list.children.length) fillWith(note_, failure(error, load));
    }
  }
  return { element, load, add: (told) => show([...all, told]) };
}

/** Newest first. Of the many that say how far a table is, only the last one still says something. */
function latest(told) {
  const seen = new Set();
  return [...told]
    .sort((a, b) => b.number - a.number)
    .filter((each) => {
      const key =
        each.type === "IN_PROGRESS"
          ? `${each.id} ${each.additional_data?.current_collection_in_progress}`
          : each.number;
      return seen.has(key) ? false : seen.add(key);
    })
    .slice(0, 100);
}

function toldLine(told) {
  const data = told.additional_data ?? {};
  const tables = data.scanned_collection ?? data.current_collection_in_progress ?? data.data_collections ?? "";
  const about = String(tables).replaceAll(",", ", ");
  const figures = [
    data.total_rows_scanned && `${compact(data.total_rows_scanned)} rows`,
    data.percent && `${data.percent} %`,
    data.status && data.status !== "SUCCEEDED" && data.status,
  ]
    .filter(Boolean)
    .join(", ");
  const bad = data.status && !["SUCCEEDED", "EMPTY"].includes(data.status);
  return {
    element: h(
      "li",
      { "data-type": told.type, "data-kind": bad ? "error" : (KINDS[told.type] ?? "info") },
      h("span.told-type", `${told.aggregate_type}: ${String(told.type).replaceAll("_", " ").toLowerCase()}`),
      time(told.timestamp),
      h("span.told-about", [about, figures].filter(Boolean).join(" · ")),
      h("code.sub", { title: "Id of the signal that asked" }, told.id),
    ),
  };
}
