// The configuration as it is kept: secrets hidden by the server, references such as ${PGPASSWORD} as they were written.

import { api } from "../api.js";
import { fillWith, h } from "../dom.js";
import { copyButton, empty, failure, panel, skeleton } from "../parts.js";

const PREFIXES = [
  ["sink.", "Sink"],
  ["stream.", "Stream"],
  ["journal.", "Journal"],
];
const section = (key) => PREFIXES.find(([prefix]) => key.startsWith(prefix))?.[1] ?? "Source";

export function configView(root, name) {
  const place = h("div", skeleton(8));
  root.append(place);
  load();

  async function load() {
    try {
      const { config } = await api.info(name);
      fillWith(
        place,
        Object.keys(config).length
          ? shown(config)
          : empty("No settings.", "This connector has an empty configuration."),
      );
    } catch (error) {
      fillWith(place, failure(error, load));
    }
  }
}

function shown(config) {
  const groups = Map.groupBy?.(Object.entries(config), ([key]) => section(key)) ?? grouped(Object.entries(config));
  const lists = ["Source", "Sink", "Stream", "Journal"]
    .filter((title) => groups.has(title))
    .map((title) => [
      h("h3", title),
      h(
        "dl.settings",
        groups
          .get(title)
          .sort(([a], [b]) => a.localeCompare(b))
          .map(([key, value]) =>
            h(
              "div",
              { "data-setting": key },
              h("dt", key),
              h(
                "dd",
                value === "****"
                  ? h("span.secret", { title: "A secret; it never leaves the server" }, "•••• hidden")
                  : String(value),
              ),
            ),
          ),
      ),
    ]);
  return panel(
    "Configuration",
    { name: "config", extra: copyButton(() => JSON.stringify(config, null, 2), "Copy the configuration as JSON") },
    lists,
    h("p.hint", "Secrets never leave the server; references such as ${PGPASSWORD} are read when the connector starts."),
  );
}

function grouped(entries) {
  const groups = new Map();
  for (const entry of entries) groups.set(section(entry[0]), [...(groups.get(section(entry[0])) ?? []), entry]);
  return groups;
}
