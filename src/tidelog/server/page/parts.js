// Pieces that several views use: a state with its word, notes, empty and error states, buttons that wait for an answer,
// dialogs and short messages.

import { copy, fillWith, h, say, svg, unique } from "./dom.js";

const TONES = {
  RUNNING: "good",
  PAUSED: "calm",
  STOPPED: "still",
  FAILED: "bad",
  UNASSIGNED: "calm",
  RESTARTING: "calm",
  STARTING: "calm",
  STOPPING: "calm",
};

/** Kafka Connect's word, except where people have a clearer one. */
export function stateWord(state) {
  if (state === "UNASSIGNED") return "Starting";
  return state ? state.charAt(0) + state.slice(1).toLowerCase() : "Unknown";
}

export function statePill(state = "") {
  const word = h("span");
  const element = h("span.pill", { "data-state": "" }, h("span.pill-dot", { "aria-hidden": "true" }), word);
  const update = (value) => {
    element.dataset.state = value ?? "";
    element.dataset.tone = TONES[value] ?? "still";
    say(word, stateWord(value));
  };
  update(state);
  return { element, update };
}

const PATHS = {
  ok: "M4.5 8.5l2.4 2.4 4.8-5.2",
  warning: "M8 4.5v4.2M8 11.2v.3",
  error: "M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2",
  info: "M8 7.4v4M8 4.6v.3",
};

export function icon(kind) {
  return svg(
    "svg.icon",
    { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", focusable: "false", "data-kind": kind },
    svg("circle", { cx: 8, cy: 8, r: 7.25 }),
    svg("path", { d: PATHS[kind] ?? PATHS.info }),
  );
}

/** kind: info, ok, warning or error. */
export function note(kind, ...children) {
  return h(
    "div.note",
    { "data-kind": kind, role: kind === "error" ? "alert" : null },
    icon(kind),
    h("div.note-text", children),
  );
}

export function empty(title, text, ...actions) {
  return h("div.empty", h("p.empty-title", title), h("p", text), actions.length > 0 && h("div.row", actions));
}

/** What went wrong, in the server's words, and a way on. */
export function failure(error, again) {
  return h(
    "div.note",
    { "data-kind": "error", role: "alert", "data-error": "" },
    icon("error"),
    h("div.note-text", h("p", error.message), again && h("p", button("Try again", again, { class: "button small" }))),
  );
}

/** A button that is busy while its work lasts, and tells when it fails. */
export function button(label, work, options = {}) {
  const element = h("button.button", { type: "button", ...options }, label);
  element.addEventListener("click", async () => {
    if (element.getAttribute("aria-busy") === "true") return;
    element.setAttribute("aria-busy", "true");
    try {
      await work(element);
    } catch (error) {
      toast(error.message, "error");
    } finally {
      element.removeAttribute("aria-busy");
    }
  });
  return element;
}

export function copyButton(text, what = "Copy") {
  const element = button(
    "Copy",
    async () => {
      await copy(typeof text === "function" ? text() : text);
      say(element, "Copied");
      setTimeout(() => say(element, "Copy"), 1600);
    },
    { class: "button small", "aria-label": what },
  );
  return element;
}

export function toast(message, kind = "ok") {
  const region = document.querySelector("[data-toasts]");
  const close = h("button.toast-close", { type: "button", "aria-label": "Close message" }, "×");
  const element = h("div.toast", { "data-kind": kind, "data-since": Date.now() }, icon(kind), h("p", message), close);
  const go = () => element.remove();
  close.addEventListener("click", go);
  region.append(element);
  while (region.children.length > 2) region.firstChild.remove();
  setTimeout(go, kind === "error" ? 12000 : 4500);
}

/** Messages of the view that was left; what was said just now still counts. */
export function clearToasts() {
  for (const element of document.querySelectorAll(".toast"))
    if (Date.now() - element.dataset.since > 1500) element.remove();
}

/** A modal dialog; `build(close)` gives its content. Resolves with what was handed to `close`, or null. */
export function dialog(title, build, options = {}) {
  return new Promise((done) => {
    const id = unique("dialog");
    const before = document.activeElement;
    const element = h("dialog.dialog", { "aria-labelledby": id, "data-dialog": options.name ?? "" });
    let answer = null;
    const close = (value = null) => ((answer = value), element.close());
    element.addEventListener("close", () => {
      element.remove();
      before?.focus?.({ preventScroll: true });
      done(answer);
    });
    fillWith(element, h("h2", { id }, title), build(close));
    document.body.append(element);
    element.showModal();
  });
}

/** Asks before something is done. `typed` must be typed when the matter is grave. */
export function confirm({ title, text, verb, typed = "", why = false, tone = "danger", name = "confirm" }) {
  return dialog(
    title,
    (close) => {
      const word =
        typed &&
        h("input", {
          type: "text",
          id: unique("typed"),
          autocomplete: "off",
          spellcheck: "false",
          "data-field": "typed",
        });
      const reason =
        why &&
        h("input", {
          type: "text",
          id: unique("why"),
          autocomplete: "off",
          placeholder: "for the history",
          "data-field": "why",
        });
      const go = h(
        "button.button",
        { type: "submit", class: tone, disabled: Boolean(typed), "data-action": "confirm" },
        verb,
      );
      word?.addEventListener?.("input", () => (go.disabled = word.value !== typed));
      const submit = (event) => {
        event.preventDefault();
        if (!go.disabled) close({ why: reason ? reason.value.trim() : "" });
      };
      return h(
        "form",
        { onsubmit: submit },
        [].concat(text).map((line) => h("p", line)),
        word && h("label.field", { for: word.id }, h("span", "Type ", h("code", typed), " to confirm"), word),
        reason && h("label.field", { for: reason.id }, h("span", "Why"), reason),
        h("div.row.dialog-actions", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), go),
      );
    },
    { name },
  );
}

export function askToken(reason) {
  return dialog(
    "Token needed",
    (close) => {
      const token = h("input", {
        type: "password",
        id: unique("token"),
        autocomplete: "off",
        required: true,
        "data-field": "token",
      });
      const submit = (event) => {
        event.preventDefault();
        close(token.value.trim());
      };
      return h(
        "form",
        { onsubmit: submit },
        h("p", reason || "This service asks who you are. Enter a bearer token; your operator has set it up."),
        h("label.field", { for: token.id }, h("span", "Bearer token"), token),
        h("p.hint", "It is kept for this tab only and forgotten when you close it."),
        h(
          "div.row.dialog-actions",
          h("button.button", { type: "button", onclick: () => close("") }, "Not now"),
          h("button.button.primary", { type: "submit" }, "Continue"),
        ),
      );
    },
    { name: "token" },
  ).then((token) => token ?? "");
}

/** A panel with a heading; `extra` stands at its right. */
export function panel(title, { extra = null, name = "" } = {}, ...children) {
  const id = unique("panel");
  return h(
    "section.panel",
    { "aria-labelledby": id, "data-panel": name },
    h("header.panel-head", h("h2", { id }, title), extra),
    children,
  );
}

export function skeleton(lines = 3) {
  return h(
    "div.skeleton",
    { "aria-hidden": "true" },
    Array.from({ length: lines }, () => h("span")),
  );
}
