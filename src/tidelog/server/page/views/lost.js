// A view for addresses that lead nowhere.

import { h } from "../dom.js";
import { empty } from "../parts.js";

export function lostView(root) {
  root.append(
    h("h1", "Nothing here"),
    empty(
      "This address leads to no view.",
      "It may come from an older link.",
      h("a.button.primary", { href: "#/" }, "All connectors"),
    ),
  );
}
