// A new connector: name and plugin, the settings that matter, a check against the real source, then it is made. Nothing
// is written anywhere before the last step.

import { api } from "../api.js";
import { debounce, fillWith, h, say, toggle, unique } from "../dom.js";
import * as fleet from "../fleet.js";
import { plural, pluginName } from "../format.js";
import { button, copyButton, failure, icon, note, panel, skeleton, toast } from "../parts.js";
import { settingsForm } from "../settings.js";

export function createView(root) {
  const name = h("input", {
    type: "text",
    id: unique("name"),
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "shop",
    required: true,
    "data-field": "name",
  });
  const nameError = h("span.problem", { "aria-live": "polite" });
  const plugin = h("select", { id: unique("plugin"), "data-field": "plugin", disabled: true }, h("option", "loading…"));
  const state = h(
    "select",
    { id: unique("state"), "data-field": "initial_state" },
    h("option", { value: "RUNNING" }, "start it at once"),
    h("option", { value: "PAUSED" }, "create it paused"),
    h("option", { value: "STOPPED" }, "create it stopped"),
  );
  const place = h("div", skeleton(6));
  const findings = h("div", { "aria-live": "polite", "data-findings": "" });
  const problem = h("div");
  const captures = new Map();
  let strict = false;
  let checked = "";
  let asked = new AbortController();
  const form = settingsForm(() => (validate(), stale()));
  const later = debounce(run, 300);

  const config = () => ({ name: name.value.trim(), "connector.class": plugin.value, ...form.config() });

  async function run() {
    asked.abort();
    asked = new AbortController();
    try {
      const answer = await api.validate(plugin.value, config(), asked.signal);
      show(answer);
      return answer;
    } catch (error) {
      if (error.name !== "AbortError") fillWith(problem, failure(error, run));
      return null;
    }
  }
  const validate = () => later();

  function show({ groups, configs }) {
    problem.replaceChildren();
    if (!form.element.isConnected) fillWith(place, form.element);
    form.update(configs, groups.length ? groups : ["Settings"], strict);
    const own = configs.find(({ definition }) => definition.name === "name")?.value.errors ?? [];
    const wrong = strict || name.value ? own.join(" ") : "";
    say(nameError, taken() || wrong);
    toggle(name, "aria-invalid", nameError.textContent ? "true" : null);
    const known = new Set(Object.keys(form.config()));
    form.problems(
      configs
        .filter(
          ({ definition, value }) =>
            value.errors.length &&
            known.has(definition.name) &&
            !form.element.querySelector(`[data-setting="${CSS.escape(definition.name)}"]`),
        )
        .flatMap(({ value }) => value.errors),
    );
    const classErrors = configs.find(({ definition }) => definition.name === "connector.class")?.value.errors ?? [];
    if (strict && classErrors.length) fillWith(problem, note("error", h("p", classErrors.join(" "))));
  }

  const taken = () =>
    fleet.connector(name.value.trim())
      ? `A connector named ${name.value.trim()} exists already. Choose another name.`
      : "";

  /** A plugin that can't capture yet is created stopped: its offsets can be managed. */
  function chosen() {
    const able = captures.get(plugin.value) ?? true;
    state.value = able ? "RUNNING" : "STOPPED";
    for (const each of state.options) each.disabled = !able && each.value !== "STOPPED";
  }

  function stale() {
    if (checked && checked !== JSON.stringify(config())) findings.firstElementChild?.setAttribute("data-stale", "");
  }

  /** All mistakes at their fields; true when there are none. */
  async function complete() {
    strict = true;
    later.cancel();
    const answer = await run();
    if (!answer || (!answer.error_count && !taken())) return Boolean(answer);
    const first = root.querySelector("[aria-invalid=true]");
    for (const fold of root.querySelectorAll("details"))
      if (fold.querySelector("[aria-invalid=true]")) fold.open = true;
    first?.focus();
    toast(
      `${plural(answer.error_count || 1, "setting is", "settings are")} not right yet; see the marked fields.`,
      "error",
    );
    return false;
  }

  async function check() {
    if (!(await complete())) return null;
    fillWith(findings, h("p.hint", "Looking at the source…"));
    try {
      const answer = await api.check(plugin.value, config());
      checked = JSON.stringify(config());
      fillWith(findings, findingsList(answer.findings ?? []));
      return answer.findings ?? [];
    } catch (error) {
      fillWith(findings, failure(error));
      return null;
    }
  }

  async function create() {
    if (!(await complete())) return;
    const made = config();
    await api.create(made.name, made, state.value);
    toast(`${made.name} is created.`);
    await fleet.refresh();
    location.hash = `#/connectors/${encodeURIComponent(made.name)}`;
  }

  root.append(
    h(
      "nav.crumbs",
      { "aria-label": "Breadcrumb" },
      h("a", { href: "#/" }, "Connectors"),
      h("span", { "aria-hidden": "true" }, "/"),
      h("span", "New"),
    ),
    h(
      "div.head",
      h(
        "div",
        h("h1", "New connector"),
        h("p.lead", "It reads the log of one database and keeps tables in your lake equal to it."),
      ),
    ),
    panel(
      "Name and source",
      { name: "identity" },
      h(
        "div.fields",
        h(
          "div.field",
          h("label", { for: name.id }, "Name", h("small.required", "required")),
          name,
          nameError,
          h("span.hint", "Its state lives under this name; it can't be changed later."),
        ),
        h(
          "div.field",
          h("label", { for: plugin.id }, "Source"),
          plugin,
          h("span.hint", "Which kind of database it reads."),
        ),
      ),
    ),
    panel("Settings", { name: "settings" }, problem, place),
    panel(
      "Check and create",
      { name: "check" },
      h(
        "p.hint",
        "The check only reads: it connects, looks at server, role, tables and slot, and says what to change.",
      ),
      findings,
      h(
        "div.row.last",
        button("Check", check, { "data-action": "check" }),
        h("label.inline", { for: state.id }, h("span", "When created,"), state),
        button("Create connector", create, { class: "primary", "data-action": "create" }),
      ),
    ),
  );

  name.addEventListener("input", () => (validate(), stale()));
  plugin.addEventListener("change", () => (chosen(), validate(), stale(), findings.replaceChildren()));
  load();

  async function load() {
    try {
      const found = (await api.plugins()).filter((each) => each.type === "source");
      for (const each of found) captures.set(each.name ?? each.class, each.captures !== false);
      const able = (yes) => found.filter((each) => (each.captures !== false) === yes);
      fillWith(
        plugin,
        able(true).map(option),
        able(false).length > 0 &&
          h("optgroup", { label: "Offsets only; capture is not there yet" }, able(false).map(option)),
      );
      plugin.disabled = false;
      chosen();
      await run();
    } catch (error) {
      fillWith(place, failure(error, load));
    }
  }

  return () => (asked.abort(), later.cancel());
}

const option = (each) => h("option", { value: each.name ?? each.class }, each.title ?? pluginName(each.class));
const RANK = { error: 0, warning: 1, ok: 2 };
const SAID = { error: "must be cured first", warning: "should be looked at", ok: "fine" };

function findingsList(found) {
  if (!found.length) return note("info", h("p", "The check has nothing to say about this source."));
  const many = (level) => found.filter((each) => each.level === level).length;
  const verdict = many("error")
    ? note(
        "error",
        h(
          "p",
          `${plural(many("error"), "finding")} must be cured before it can run. Apply the cures, then check again.`,
        ),
      )
    : many("warning")
      ? note("warning", h("p", `It can run; ${plural(many("warning"), "finding")} should be looked at.`))
      : note("ok", h("p", "All is well: it can be created."));
  const sorted = [...found].sort((a, b) => RANK[a.level] - RANK[b.level]);
  return h("div.findings", verdict, h("ul.plain", sorted.map(finding)));
}

function finding({ level, subject, meaning, cure }) {
  return h(
    "li.finding",
    { "data-level": level },
    icon(level),
    h(
      "div",
      h("p", h("strong", subject), h("span.offscreen", `: ${SAID[level] ?? level}. `), " ", meaning),
      cure &&
        h(
          "div.cure",
          h("pre", { tabindex: "0", "aria-label": `Cure for ${subject}` }, cure),
          copyButton(cure, `Copy the cure for ${subject}`),
        ),
    ),
  );
}
