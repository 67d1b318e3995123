// Keys. Single letters count only where nobody types, and never with a modifier.

import { h } from "./dom.js";
import { dialog } from "./parts.js";

const HELP = [
  ["?", "Show these shortcuts"],
  ["g c", "Go to all connectors"],
  ["n", "New connector"],
  ["/", "Search in this view"],
  ["g h", "Connector: overview"],
  ["g o", "Connector: offsets"],
  ["g s", "Connector: configuration"],
  ["t", "Change colours"],
  ["Esc", "Close a dialog, leave a chart"],
];

export function showShortcuts() {
  if (document.querySelector("dialog[open]")) return;
  dialog(
    "Keyboard shortcuts",
    (close) => [
      h(
        "dl.keys",
        HELP.map(([keys, meaning]) =>
          h(
            "div",
            h(
              "dt",
              keys.split(" ").map((key) => h("kbd", key)),
            ),
            h("dd", meaning),
          ),
        ),
      ),
      h("p.hint", "Tab moves through everything; in a chart the arrow keys read single values."),
      h("div.row.dialog-actions", h("button.button", { type: "button", onclick: () => close() }, "Close")),
    ],
    { name: "shortcuts" },
  );
}

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

function within(tail) {
  const here = /^#\/connectors\/[^/]+/.exec(location.hash);
  if (here) location.hash = here[0] + tail;
}

export function installShortcuts({ nextTheme }) {
  let led = 0;
  const single = {
    "?": showShortcuts,
    n: () => (location.hash = "#/new"),
    t: nextTheme,
    "/": () => document.querySelector("main [type=search]")?.focus(),
  };
  const after = {
    c: () => (location.hash = "#/"),
    h: () => within(""),
    o: () => within("/offsets"),
    s: () => within("/config"),
  };
  addEventListener("keydown", (event) => {
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      typing(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const follows = Date.now() - led < 1200;
    led = event.key === "g" ? Date.now() : 0;
    const act = follows ? after[event.key] : single[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
