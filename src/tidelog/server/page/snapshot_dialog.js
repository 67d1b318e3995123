// Asking for a snapshot: which tables, which of their rows, and whether the stream may go on meanwhile.

import { api } from "./api.js";
import { h, keyed, say, unique } from "./dom.js";
import * as fleet from "./fleet.js";
import { plural } from "./format.js";
import { dialog, note, toast } from "./parts.js";

export async function askSnapshot(name) {
  const { tables = [] } = (await api.tables(name)) ?? {};
  const asked = await dialog(
    `Snapshot of ${name}`,
    (close) =>
      form(
        name,
        tables.map((table) => table.name),
        close,
      ),
    { name: "snapshot" },
  );
  if (!asked) return;
  toast(`A snapshot of ${plural(asked.tables.length, "table")} was asked for.`);
  await fleet.refreshSnapshot(name);
}

function form(name, tables, close) {
  const chosen = new Set();
  const search = h("input", {
    type: "search",
    placeholder: "Find a table",
    "aria-label": "Find a table",
    autofocus: true,
  });
  const list = h("ul.picker", { "aria-label": "Tables", "data-picker": "tables" });
  const count = h("span.sub", { "aria-live": "polite" });
  const where = h("input.mono", {
    type: "text",
    id: unique("where"),
    placeholder: "id > 1000 AND region = 'EU'",
    spellcheck: "false",
    autocomplete: "off",
    "data-field": "where",
  });
  const blocking = h("input", { type: "checkbox", id: unique("blocking"), "data-field": "blocking" });
  const surrogate = h("input.mono", {
    type: "text",
    id: unique("surrogate"),
    spellcheck: "false",
    autocomplete: "off",
    "data-field": "surrogate_key",
  });
  const go = h("button.button.primary", { type: "submit", disabled: true, "data-action": "confirm" }, "Start");
  const problem = h("div");
  const shown = () => tables.filter((table) => table.toLowerCase().includes(search.value.trim().toLowerCase()));

  function draw() {
    keyed(list, shown(), (table) => table, entry);
    say(count, tables.length ? `${chosen.size} of ${plural(tables.length, "table")} chosen` : "");
    go.disabled = !chosen.size;
  }

  function entry(table) {
    const box = h("input", { type: "checkbox", value: table });
    box.addEventListener("change", () => (box.checked ? chosen.add(table) : chosen.delete(table), draw()));
    return {
      element: h("li", h("label.check", box, h("span.break", table))),
      update: () => (box.checked = chosen.has(table)),
    };
  }

  const all = h("button.button.small", { type: "button" }, "All shown");
  const none = h("button.button.small", { type: "button" }, "None");
  all.addEventListener("click", () => (shown().forEach((table) => chosen.add(table)), draw()));
  none.addEventListener("click", () => (chosen.clear(), draw()));
  search.addEventListener("input", draw);
  search.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());

  async function submit(event) {
    event.preventDefault();
    const asked = { tables: [...chosen] };
    if (where.value.trim()) asked.where = where.value.trim();
    if (surrogate.value.trim()) asked.surrogate_key = surrogate.value.trim();
    if (blocking.checked) asked.blocking = true;
    go.setAttribute("aria-busy", "true");
    try {
      await api.startSnapshot(name, asked);
      close(asked);
    } catch (error) {
      problem.replaceChildren(note("error", h("p", error.message)));
    } finally {
      go.removeAttribute("aria-busy");
    }
  }

  draw();
  return h(
    "form",
    { onsubmit: submit },
    !tables.length &&
      note(
        "warning",
        h("p", "No captured tables are known. Start the connector first; it learns them from its source."),
      ),
    h("fieldset", h("legend", "Tables"), h("div.row.picker-tools", search, all, none), list, count),
    h(
      "label.field",
      { for: where.id },
      h("span", "Filter ", h("small", "optional")),
      where,
      h("span.hint", "An SQL condition; only rows that fulfil it are read. It holds for every chosen table."),
    ),
    h(
      "label.check",
      { for: blocking.id },
      blocking,
      h(
        "span",
        h("strong", "Blocking"),
        h("span.hint", "The stream waits until the snapshot is over. Without it, both run side by side."),
      ),
    ),
    h(
      "details",
      h("summary", "More"),
      h(
        "label.field",
        { for: surrogate.id },
        h("span", "Surrogate key ", h("small", "optional")),
        surrogate,
        h("span.hint", "A column to walk the table by, instead of its primary key."),
      ),
    ),
    problem,
    h("div.row.dialog-actions", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), go),
  );
}
