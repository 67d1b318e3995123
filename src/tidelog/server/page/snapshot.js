// Snapshots as a picture: each table is a bar of cells, from what is delivered over what is read and what is planned to
// what is still ahead. A chunk's way is planned, staged, emitted; how many there will be is known only from the table's
// estimated rows, so the rest is an estimate and is said to be one.

import { h, keyed, say, toggle, unique } from "./dom.js";
import { compact, duration, number, percent, plural } from "./format.js";
import { note, statePill } from "./parts.js";

const CELLS = 60;

/** The whole of a running snapshot, or null when none runs. `share` is null while nothing is estimated. */
export function progress(snapshot) {
  const tables = snapshot?.tables ?? [];
  if (!tables.length) return null;
  const total = (key) => tables.reduce((sum, table) => sum + (Number(table[key]) || 0), 0);
  const [rows, estimate] = [total("rows"), tables.reduce((sum, t) => sum + Math.max(t.estimate || 0, t.rows || 0), 0)];
  const left = tables.map((table) => table.seconds_left).filter((s) => s !== null && s !== undefined);
  return {
    tables: tables.length,
    rows,
    estimate,
    paused: snapshot.paused,
    speed: total("rows_per_second"),
    share: estimate ? rows / estimate : null,
    left: left.length ? Math.max(...left) : null,
  };
}

/** How many of `cells` cells are emitted, staged, planned and ahead, and how many chunks one cell stands for. */
export function picture(table, cells = CELLS) {
  const [emitted, staged, planned] = [table.emitted, table.staged, table.planned].map((n) => Number(n) || 0);
  const flying = emitted + staged + planned;
  const expected =
    table.estimate > 0 && table.rows > 0 && emitted > 0 ? Math.ceil((emitted * table.estimate) / table.rows) : 0;
  const total = expected ? Math.max(flying, expected) : Math.max(flying + 4, 12); // not known yet: some more will come
  const drawn = Math.min(cells, total);
  const upTo = (chunks) => Math.round((chunks / total) * drawn);
  const ends = [upTo(emitted), upTo(emitted + staged), upTo(flying)];
  if (staged && ends[1] === ends[0] && ends[1] < drawn) ends[1]++;
  if (planned && ends[2] <= ends[1] && ends[1] < drawn) ends[2] = ends[1] + 1;
  ends[2] = Math.max(ends[2], ends[1]);
  return {
    kinds: Array.from({ length: drawn }, (_, i) =>
      i < ends[0] ? "emitted" : i < ends[1] ? "staged" : i < ends[2] ? "planned" : "rest",
    ),
    perCell: total / drawn,
  };
}

/** The picture of all tables; `act(verb, table)` stops one. */
export function snapshotPicture(act) {
  const whole = h("p.snapshot-whole", { "aria-live": "off", "data-snapshot": "whole" });
  const list = h("ul.walks", { "aria-label": "Tables of the snapshot" });
  const legend = h(
    "p.legend",
    { "aria-hidden": "true" },
    ["emitted", "staged", "planned", "rest"].map((kind) => h("span", h("i.cell", { "data-kind": kind }), kind)),
  );
  const element = h("div.snapshot-picture", whole, list, legend);
  return {
    element,
    update(snapshot) {
      const all = progress(snapshot);
      element.hidden = !all;
      if (!all) return;
      const parts = [
        plural(all.tables, "table"),
        all.share === null
          ? `${compact(all.rows)} rows`
          : `${compact(all.rows)} of about ${compact(all.estimate)} rows (${percent(all.share)})`,
      ];
      if (all.paused) parts.push("paused");
      else if (all.speed) parts.push(`${compact(all.speed)} rows/s`);
      if (all.left !== null && !all.paused) parts.push(`about ${duration(all.left)} left`);
      say(whole, parts.join(" · "));
      keyed(
        list,
        snapshot.tables,
        (table) => `${table.id} ${table.table}`,
        (table) => walk(table, act),
      );
    },
  };
}

function walk(first, act) {
  const id = unique("walk");
  const figures = h("span.walk-figures");
  const bar = h("div.cells", { role: "progressbar", "aria-labelledby": id, "aria-valuemin": 0, "aria-valuemax": 100 });
  const chunks = h("span.sub");
  const stop = h(
    "button.button.small.quiet",
    { type: "button", "aria-label": `Stop the snapshot of ${first.table}`, "data-action": "stop-table" },
    "Stop",
  );
  stop.addEventListener("click", () => act("stop", first.table));
  const element = h(
    "li.walk",
    { "data-table": first.table, "data-signal": first.id },
    h("div.walk-head", h("span.walk-name", { id }, first.table), h("span.tag", first.kind), figures, stop),
    bar,
    chunks,
  );
  function update(table) {
    const share = table.estimate > 0 ? Math.min(1, table.rows / table.estimate) : null;
    const waits = !table.rows && !table.estimate && !table.planned && !table.staged;
    const parts = waits
      ? ["waits for its turn"]
      : [`${number(table.rows)}${table.estimate ? ` of ~${compact(table.estimate)}` : ""} rows`];
    if (share !== null) parts.push(percent(share));
    if (table.rows_per_second) parts.push(`${compact(table.rows_per_second)} rows/s`);
    if (table.seconds_left !== null && table.seconds_left !== undefined)
      parts.push(`${duration(table.seconds_left)} left`);
    say(figures, parts.join(" · "));
    cells(bar, table);
    toggle(bar, "aria-valuenow", share === null ? null : Math.floor(share * 100));
    toggle(bar, "aria-valuetext", parts.join(", "));
    say(
      chunks,
      `chunks: ${number(table.emitted ?? 0)} emitted, ${number(table.staged ?? 0)} staged, ${number(table.planned ?? 0)} planned`,
    );
  }
  return { element, update };
}

function cells(bar, table) {
  const { kinds, perCell } = picture(table);
  while (bar.children.length > kinds.length) bar.lastChild.remove();
  while (bar.children.length < kinds.length) bar.append(h("i.cell"));
  kinds.forEach((kind, i) => bar.children[i].dataset.kind !== kind && (bar.children[i].dataset.kind = kind));
  bar.title = perCell > 1.5 ? `One cell stands for about ${number(perCell)} chunks` : "One cell is one chunk";
}

/** Snapshots that are over, newest first. */
export function endedList(ended = []) {
  if (!ended.length) return null;
  return h(
    "details.ended",
    h("summary", `Ended snapshots (${ended.length})`),
    h(
      "ul.plain",
      ended.map((each) => h("li", endedLine(each))),
    ),
  );
}

const TONES = { COMPLETED: "good", ABORTED: "still", SKIPPED: "calm" };

function endedLine({ id, how, tables = {}, failures = {}, ms }) {
  const pill = statePill(how);
  pill.element.dataset.tone = Object.keys(failures).length ? "bad" : TONES[how];
  const rows = Object.values(tables).reduce((sum, n) => sum + Number(n), 0);
  return [
    h(
      "p.row",
      pill.element,
      h("code", id),
      h("span", Object.keys(tables).join(", ") || "no table"),
      h("span.sub", [`${number(rows)} rows`, ms ? `in ${duration(ms / 1000)}` : ""].filter(Boolean).join(" ")),
    ),
    ...Object.entries(failures).map(([table, why]) => note("error", h("p", h("code", table), ": ", why))),
  ];
}
