// All connectors at a glance: what needs a person stands out, everything else is quiet. One row per connector, kept in
// place while its figures change.

import { h, keyed, say, toggle } from "../dom.js";
import * as fleet from "../fleet.js";
import { compact, DASH, milliseconds, percent, plural, pluginName, rate } from "../format.js";
import { sparkline } from "../charts.js";
import { empty, failure, icon, skeleton, statePill, stateWord } from "../parts.js";
import { progress } from "../snapshot.js";

const LATE_MS = 60000;

export function connectorsView(root) {
  const count = h("p.lead", { "aria-live": "polite", "data-summary": "" });
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by name, plugin or state",
    "aria-label": "Filter connectors",
    "data-field": "filter",
  });
  const create = h(
    "a.button.primary",
    { href: "#/new", "data-action": "new", "aria-keyshortcuts": "n" },
    "New connector",
  );
  const tools = h("div.tools", { hidden: true }, filter);
  const rows = h("tbody", { role: "rowgroup" });
  const table = h(
    "table.glance",
    { role: "table", "aria-label": "Connectors", hidden: true },
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        ["State", "Name", "Lag", "Events/s", "Snapshot", "Notices"].map((title) =>
          h("th", { scope: "col", role: "columnheader" }, title),
        ),
      ),
    ),
    rows,
  );
  const place = h("div.place", skeleton(4));
  root.append(h("div.head", h("div", h("h1", "Connectors"), count), create), tools, table, place);

  function draw() {
    const all = fleet.connectors();
    const wanted = filter.value.trim().toLowerCase();
    const shown = all.filter((each) =>
      `${each.name} ${each.plugin} ${pluginName(each.plugin)} ${each.state}`.toLowerCase().includes(wanted),
    );
    say(count, all.length ? summary(all) : "");
    tools.hidden = all.length < 2 && !wanted;
    create.hidden = !all.length && fleet.isLoaded();
    table.hidden = !shown.length;
    keyed(rows, shown, (each) => each.name, row);
    toggle(place, "data-shows", kind(all, shown));
  }

  function kind(all, shown) {
    const what =
      fleet.trouble() && !all.length
        ? "trouble"
        : !fleet.isLoaded()
          ? "loading"
          : !all.length
            ? "empty"
            : !shown.length
              ? "none"
              : "";
    if (place.dataset.shows !== what) place.replaceChildren(...filling(what));
    return what;
  }

  filter.addEventListener("input", draw);
  draw();
  const timer = setInterval(draw, 5000);
  const off = fleet.onChange(draw);
  return () => (clearInterval(timer), off());
}

function filling(what) {
  switch (what) {
    case "trouble":
      return [failure(fleet.trouble(), () => fleet.refresh())];
    case "loading":
      return [skeleton(4)];
    case "none":
      return [empty("No connector matches.", "Clear the filter to see all of them.")];
    case "empty":
      return [
        empty(
          "No connectors yet",
          [
            "A connector reads the log of one database and keeps tables in your lake equal to it. Create one here; ",
            "it can be checked against the database before anything is written. Or, on the command line: ",
            h("code", "tidelog connectors create shop.yaml"),
          ],
          h("a.button.primary", { href: "#/new", "data-action": "new-first" }, "New connector"),
        ),
      ];
    default:
      return [];
  }
}

function summary(all) {
  const states = new Map();
  for (const { state } of all) states.set(state, (states.get(state) ?? 0) + 1);
  const parts = [...states].map(([state, many]) => `${many} ${stateWord(state).toLowerCase()}`);
  return `${plural(all.length, "connector")}: ${parts.join(", ")}`;
}

function cell(title, ...children) {
  return h("td", { role: "cell", "data-title": title }, children);
}

function row(about) {
  const href = `#/connectors/${encodeURIComponent(about.name)}`;
  const pill = statePill();
  const spark = sparkline();
  const plugin = h("span.sub");
  const lag = h("span.figure", { "data-value": "lag" });
  const speed = h("span.figure", { "data-value": "rate" });
  const snapshot = h("div.glance-snapshot");
  const notices = h("div.glance-notices");
  const element = h(
    "tr",
    { role: "row", "data-connector": about.name },
    cell("State", pill.element),
    cell("Name", h("a.name", { href }, about.name), plugin),
    cell("Lag", lag),
    cell("Events/s", h("div.rate", speed, spark.element)),
    cell("Snapshot", snapshot),
    cell("Notices", notices),
  );
  element.addEventListener("click", (event) => {
    if (!event.target.closest("a") && !getSelection().toString()) location.hash = href;
  });
  function update(each) {
    const { metrics } = each;
    const active = each.state === "RUNNING";
    pill.update(each.state);
    say(plugin, pluginName(each.plugin));
    say(lag, active ? milliseconds(metrics.lag_ms) : DASH);
    toggle(lag, "data-late", active && metrics.lag_ms > LATE_MS ? "yes" : null);
    say(speed, active ? rate(metrics.events_per_second) : DASH);
    spark.update(active ? each.past.events_per_second : [], Date.now());
    glanceSnapshot(snapshot, each.snapshot);
    glanceNotices(notices, each);
  }
  return { element, update };
}

function glanceSnapshot(place, snapshot) {
  const whole = progress(snapshot);
  if (!whole) return place.textContent === DASH ? undefined : place.replaceChildren(h("span.sub", DASH));
  let bar = place.querySelector("progress");
  if (!bar) place.replaceChildren((bar = h("progress", { max: 1, "aria-label": "Snapshot progress" })), h("span.sub"));
  bar.value = whole.share ?? 0;
  const left = plural(whole.tables, "table");
  return say(
    place.lastChild,
    whole.paused
      ? `paused at ${percent(whole.share)}`
      : whole.share === null
        ? `${left}, ${compact(whole.rows)} rows`
        : `${percent(whole.share)} of ${left}`,
  );
}

function glanceNotices(place, { state, trace, metrics }) {
  const failed = [firstLine(trace) || "Failed; open it to see why."];
  const warnings = state === "FAILED" ? failed : [...(trace ? [trace] : []), ...(metrics.warnings ?? [])];
  const told = warnings.join("\n");
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  const kind = state === "FAILED" ? "error" : "warning";
  place.replaceChildren(
    ...(warnings.length
      ? warnings.map((text) => h("p.notice", { "data-kind": kind, title: text }, icon(kind), h("span", text)))
      : [h("span.sub", "none")]),
  );
}

const firstLine = (text) =>
  String(text ?? "")
    .split("\n")
    .find((line) => line.trim()) ?? "";
