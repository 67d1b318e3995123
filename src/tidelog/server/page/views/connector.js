// One connector: its name, its state and what can be done with it stand above; below are its views (overview, offsets,
// configuration), each with an address of its own.

import { api } from "../api.js";
import { fillWith, h, say } from "../dom.js";
import * as fleet from "../fleet.js";
import { pluginName } from "../format.js";
import { button, confirm, copyButton, empty, failure, note, skeleton, statePill, toast } from "../parts.js";
import { configView } from "./config.js";
import { offsetsView } from "./offsets.js";
import { overviewView } from "./overview.js";

const VIEWS = { "": overviewView, offsets: offsetsView, config: configView };
const TITLES = { "": "Overview", offsets: "Offsets", config: "Configuration" };

export function connectorView(root, [name, tab = ""], ended) {
  const base = `#/connectors/${encodeURIComponent(name)}`;
  const pill = statePill();
  pill.element.setAttribute("role", "status");
  const plugin = h("span.sub");
  const actions = h("div.row.actions", { role: "group", "aria-label": `Control ${name}` });
  const tabs = h(
    "nav.tabs",
    { "aria-label": "Views of this connector" },
    Object.entries(TITLES).map(([key, title]) =>
      h(
        "a",
        {
          href: key ? `${base}/${key}` : base,
          "aria-current": key === tab ? "page" : null,
          "data-tab": key || "overview",
        },
        title,
      ),
    ),
  );
  const alarm = h("div.alarm");
  const body = h("div.body", skeleton(6));
  root.append(
    h(
      "nav.crumbs",
      { "aria-label": "Breadcrumb" },
      h("a", { href: "#/" }, "Connectors"),
      h("span", { "aria-hidden": "true" }, "/"),
      h("span", name),
    ),
    h("div.head", h("div.title", h("h1", name), h("p.title-sub", pill.element, plugin)), actions),
    tabs,
    alarm,
    body,
  );

  let inner = null;
  let shown = "";
  const buttons = controls(name, () => fleet.connector(name)?.state);
  fillWith(actions, buttons.elements);

  function draw(changed = null) {
    if (changed !== null && changed !== name) return;
    const about = fleet.connector(name);
    if (!about) return missing();
    pill.update(about.state);
    say(plugin, pluginName(about.plugin));
    buttons.update(about.state);
    drawAlarm(about);
    if (inner) return;
    body.replaceChildren();
    inner = VIEWS[tab](body, name, ended) ?? {};
  }

  function missing() {
    if (!fleet.isLoaded() && !fleet.trouble()) return;
    inner?.stop?.();
    inner = null;
    actions.hidden = tabs.hidden = true;
    fillWith(
      body,
      fleet.trouble()
        ? failure(fleet.trouble(), () => fleet.refresh())
        : empty(
            `There is no connector named ${name}.`,
            "It was deleted, or the name in the address is not right.",
            h("a.button.primary", { href: "#/" }, "All connectors"),
          ),
    );
  }

  function drawAlarm({ state, trace }) {
    const wanted = state === "FAILED" ? `failed ${trace}` : trace;
    if (shown === wanted) return;
    shown = wanted;
    fillWith(alarm, wanted && (state === "FAILED" ? failedNote(name, base, trace) : note("warning", h("p", trace))));
  }

  const off = fleet.onChange(draw);
  draw();
  return () => (off(), inner?.stop?.());
}

function failedNote(name, base, trace) {
  const lines = String(trace ?? "")
    .split("\n")
    .filter((line) => line.trim());
  const restart = button("Restart", () => act(name, "restart", "Restarting."), { class: "small" });
  return note(
    "error",
    h("p", h("strong", "This connector has failed. "), lines[0] ?? "It left no message; look into the service's log."),
    h(
      "p.hint",
      "What it delivered is safe, and nothing is lost while it stands still as long as the source keeps its log. Cure the cause, then restart it. If its position is gone, choose another one under ",
      h("a", { href: `${base}/offsets` }, "Offsets"),
      ".",
    ),
    h("p.row", restart, lines.length > 1 && copyButton(trace, "Copy the whole trace")),
    lines.length > 1 && h("details", h("summary", "Whole trace"), h("pre.trace", { tabindex: "0" }, trace)),
  );
}

async function act(name, verb, message) {
  await api[verb](name);
  toast(message);
  await fleet.refreshStatus(name);
}

const SHOWN = {
  start: ["STOPPED"],
  resume: ["PAUSED"],
  pause: ["RUNNING"],
  stop: ["RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "RESTARTING"],
  restart: ["RUNNING", "FAILED", "UNASSIGNED"],
};

function controls(name) {
  const made = {
    start: button("Start", () => act(name, "resume", `${name} is starting.`), {
      class: "primary",
      "data-action": "start",
    }),
    resume: button("Resume", () => act(name, "resume", `${name} goes on.`), {
      class: "primary",
      "data-action": "resume",
    }),
    pause: button("Pause", () => act(name, "pause", `${name} is pausing; it keeps its place.`), {
      "data-action": "pause",
    }),
    stop: button(
      "Stop",
      () => act(name, "stop", `${name} is stopping. Its offsets can be changed once it is stopped.`),
      { "data-action": "stop" },
    ),
    restart: button("Restart", () => act(name, "restart", `${name} is restarting.`), { "data-action": "restart" }),
    remove: button("Delete", () => remove(name), { class: "quiet-danger", "data-action": "delete" }),
  };
  return {
    elements: Object.values(made),
    update(state) {
      for (const [key, states] of Object.entries(SHOWN)) made[key].hidden = !states.includes(state);
    },
  };
}

async function remove(name) {
  const sure = await confirm({
    title: `Delete ${name}?`,
    text: [
      "The connector stops, and its configuration is forgotten. Tables in the lake stay as they are, and so do its offsets with their history: a connector of the same name goes on from there.",
      "To begin from nothing instead, reset its offsets first.",
    ],
    verb: "Delete",
    typed: name,
    name: "delete",
  });
  if (!sure) return;
  await api.remove(name);
  toast(`${name} is deleted.`);
  await fleet.refresh();
  location.hash = "#/";
}
