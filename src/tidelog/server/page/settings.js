// The settings of a connector as a form, made from what `validate` says: the essential ones first, the others on demand,
// each with its meaning, its default and what is wrong with it. A field that was not touched stays out of the
// configuration; defaults are the server's business.

import { h, keyed, say, toggle, unique } from "./dom.js";

const APART = ["name", "connector.class", "tasks.max"];
const ESSENTIAL =
  /^(database\.(hostname|port|user|password|dbname|names|include\.list)|mongodb\.connection\.string|table\.include\.list|snapshot\.mode|sink\.(type|path|format))$/;
const PATTERNS = /\b(N|ALGORITHM|SALT)\b/; // such a name stands for many: it is written under "other settings"

const essential = (definition) => definition.required || ESSENTIAL.test(definition.name);

/** `onEdit()` after each change. */
export function settingsForm(onEdit) {
  const values = new Map();
  const touched = new Set();
  const groups = h("div.groups");
  const others = otherSettings(() => onEdit());
  const element = h("div", groups, others.element);

  function edit(name, value) {
    if (value === "") values.delete(name);
    else values.set(name, value);
    touched.add(name);
    onEdit();
  }

  function update(configs, titles, strict) {
    const shown = configs.filter(
      ({ definition }) =>
        !APART.includes(definition.name) && !PATTERNS.test(definition.name) && !others.has(definition.name),
    );
    const names = new Set(shown.map(({ definition }) => definition.name));
    for (const name of [...values.keys()]) if (!names.has(name)) values.delete(name); // of a sink that was chosen before
    const sections = titles
      .map((title) => ({
        title,
        configs: shown.filter(({ definition }) => (definition.group ?? "Settings") === title),
      }))
      .filter((each) => each.configs.length);
    keyed(
      groups,
      sections,
      (each) => each.title,
      ({ title }) => group(title, edit),
    );
    for (const each of sections) groups.tidelogRows.get(each.title).refresh(each.configs, { values, touched, strict });
  }

  return {
    element,
    update,
    config: () => ({ ...Object.fromEntries(values), ...others.config() }),
    problems: others.problems,
  };
}

function group(title, edit) {
  const first = h("div.fields");
  const rest = h("div.fields");
  const summary = h("summary");
  const more = h("details.more", summary, rest);
  const id = unique("group");
  const element = h(
    "section.group",
    { "aria-labelledby": id, "data-group": title },
    h("h3", { id }, title),
    first,
    more,
  );
  const field = ({ definition }) => settingField(definition, edit);
  function refresh(configs, context) {
    const ahead = configs.filter(({ definition }) => essential(definition));
    const behind = configs.filter(({ definition }) => !essential(definition));
    for (const [place, list] of [
      [first, ahead],
      [rest, behind],
    ]) {
      keyed(place, list, ({ definition }) => `${definition.name} ${definition.type}`, field);
      for (const config of list)
        place.tidelogRows.get(`${config.definition.name} ${config.definition.type}`).refresh(config, context);
    }
    more.hidden = !behind.length;
    const set = behind.filter(({ definition }) => context.values.has(definition.name)).length;
    say(summary, `${ahead.length ? "More" : "Settings"} (${behind.length}${set ? `, ${set} set` : ""})`);
    if (behind.some(({ definition, value }) => value.errors?.length && context.values.has(definition.name)))
      more.open = true;
  }
  return { element, refresh };
}

function settingField(definition, edit) {
  const id = unique("setting");
  const told = `${id}-told`;
  const error = h("span.problem", { id: told, "aria-live": "polite" });
  let control = null;
  const place = h("div.control");
  const element = h(
    "div.field",
    { "data-setting": definition.name },
    h("label", { for: id }, h("code", definition.name), definition.required && h("small.required", "required")),
    place,
    error,
    h("span.hint", definition.documentation),
  );

  function make(choices) {
    const old = control?.value ?? "";
    const common = { id, "aria-describedby": told, "data-field": definition.name };
    const preset = definition.default_value ?? "";
    const options = definition.type === "BOOLEAN" ? ["true", "false"] : choices;
    if (options.length)
      control = h(
        "select",
        common,
        h("option", { value: "" }, preset ? `default: ${preset}` : "choose…"),
        options.filter(Boolean).map((each) => h("option", { value: each }, each)),
      );
    else
      control = h("input", {
        ...common,
        type: definition.type === "PASSWORD" ? "password" : "text",
        placeholder: preset,
        inputmode: /INT|LONG/.test(definition.type) ? "numeric" : null,
        autocomplete: "off",
        spellcheck: "false",
      });
    control.value = old;
    control.addEventListener("input", () => edit(definition.name, control.value.trim()));
    place.replaceChildren(control);
  }

  let key = null;
  function refresh({ value }, { touched, strict, values }) {
    const choices = value.recommended_values ?? [];
    const wanted = choices.join("\n");
    if (wanted !== key) make(choices);
    key = wanted;
    if (!values.has(definition.name) && document.activeElement !== control) control.value = "";
    const shown =
      (value.errors ?? []).length && (strict || (touched.has(definition.name) && values.has(definition.name)))
        ? value.errors.join(" ")
        : "";
    say(error, shown);
    toggle(control, "aria-invalid", shown ? "true" : null);
  }
  return { element, refresh };
}

/** Settings that have no field of their own: patterned names, and plugins that take whatever they are given. */
function otherSettings(onEdit) {
  const rows = h("div");
  const problems = h("div");
  const add = h("button.button.small", { type: "button", "data-action": "add-setting" }, "Add another setting");
  add.addEventListener("click", () => {
    const name = h("input.mono", {
      type: "text",
      placeholder: "column.mask.with.5.chars",
      "aria-label": "Name of the setting",
      spellcheck: "false",
    });
    const value = h("input.mono", {
      type: "text",
      placeholder: "value",
      "aria-label": "Value of the setting",
      spellcheck: "false",
    });
    const gone = h("button.button.small.quiet", { type: "button", "aria-label": "Remove this setting" }, "Remove");
    const row = h("div.pair", name, value, gone);
    gone.addEventListener("click", () => (row.remove(), onEdit()));
    for (const input of [name, value]) input.addEventListener("input", onEdit);
    rows.append(row);
    name.focus();
  });
  const pairs = () =>
    [...rows.children]
      .map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()))
      .filter(([name, value]) => name && value);
  return {
    element: h(
      "section.group",
      { "data-group": "Other" },
      h("h3", "Other settings"),
      h("p.hint", "For names that are patterns, or settings copied from an existing connector."),
      rows,
      problems,
      add,
    ),
    config: () => Object.fromEntries(pairs()),
    has: (name) => pairs().some(([each]) => each === name),
    problems: (texts) => problems.replaceChildren(...texts.map((text) => h("p.problem", text))),
  };
}
