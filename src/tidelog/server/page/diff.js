// Before and after, key by key. What stayed is counted, not shown: a comparison is about what differs.

import { h } from "./dom.js";
import { same } from "./exact.js";
import { exactly, reading } from "./readings.js";
import { shown } from "./schema.js";

/** [{key, kind: added | removed | changed | same, before, after}] */
export function compare(before, after) {
  const keys = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return keys.map((key) => {
    const [had, has] = [key in (before ?? {}), key in (after ?? {})];
    const kind = !had ? "added" : !has ? "removed" : same(before[key], after[key]) ? "same" : "changed";
    return { key, kind, before: before?.[key], after: after?.[key] };
  });
}

const MARKS = { added: "+", removed: "−", changed: "→", same: "" };

export function diffTable(plugin, before, after, caption) {
  const rows = compare(before, after);
  const differ = rows.filter((row) => row.kind !== "same");
  const still = rows.length - differ.length;
  if (!differ.length) return h("p.hint", "No key differs.");
  return h(
    "div.diff-frame",
    h(
      "table.diff",
      h("caption.offscreen", caption),
      h(
        "thead",
        h("tr", h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Now"), h("th", { scope: "col" }, "After")),
      ),
      h(
        "tbody",
        differ.map((row) => line(plugin, row)),
      ),
    ),
    still > 0 &&
      h("p.hint", `${still} ${still === 1 ? "key stays" : "keys stay"} as ${still === 1 ? "it is" : "they are"}.`),
  );
}

function line(plugin, { key, kind, before, after }) {
  return h(
    "tr",
    { "data-kind": kind, "data-key": key },
    h("th", { scope: "row" }, h("code", key)),
    side(plugin, key, kind === "added" ? undefined : before, "before"),
    side(plugin, key, kind === "removed" ? undefined : after, "after", MARKS[kind]),
  );
}

function side(plugin, key, value, which, mark = "") {
  const told =
    value === undefined
      ? h("span.sub", which === "before" ? "not there" : "gone")
      : [
          h("span.value", shown(value)),
          h("small.reading", { title: exactly(key, value) || null }, reading(plugin, key, value)),
        ];
  return h("td", { "data-side": which }, mark && h("span.mark", { "aria-hidden": "true" }, mark), told);
}

/** One line for the history: `lsn 7 → 5, txId removed`. */
export function diffLine(before, after) {
  if (after === null || after === undefined) return h("span", "offset removed: the next start behaves as the first");
  const differ = compare(before, after).filter((row) => row.kind !== "same");
  if (!differ.length) return h("span", "no key differs");
  return h(
    "span.diff-line",
    differ.map(({ key, kind, before: was, after: is }) =>
      h(
        "span.diff-item",
        { "data-kind": kind },
        h("code", key),
        " ",
        kind !== "added" && h("del", shown(was)),
        kind === "changed" && " → ",
        kind !== "removed" && h("ins", shown(is)),
      ),
    ),
  );
}
