// The offset as a typed form: one card per partition, one field per key, made from the plugin's schema. The form owns no
// state; it shows a draft and hands back the next one, so that it and the raw JSON are always the same thing.

import { h, keyed, say, toggle, unique } from "./dom.js";
import { same, stringify } from "./exact.js";
import { exactly, reading } from "./readings.js";
import { define, initial, kind, options, shown, typed } from "./schema.js";

/** `change(draft)` with the next draft; `shapes` from schema.js. */
export function offsetForm({ plugin, shapes, change }) {
  const cards = h("div.parts");
  const add = h("button.button.small", { type: "button", "data-action": "add-partition" }, "Add a partition");
  const element = h("div.offset-form", cards, add);
  let draft = [];

  const replace = (index, part) => change(draft.map((each, i) => (i === index ? part : each)));
  const drop = (index) => change(draft.filter((_, i) => i !== index));
  add.addEventListener("click", () =>
    change([
      ...draft,
      { partition: blank(shapes.partition, draft[0]?.partition), offset: blank(shapes.offset, draft[0]?.offset) },
    ]),
  );

  function update(next, context) {
    draft = next;
    keyed(
      cards,
      draft.map((part, index) => ({ part, index })),
      ({ index }) => index,
      ({ index }) => card(index, { plugin, shapes, replace, drop }),
    );
    draft.forEach((part, index) => cards.tidelogRows.get(index).refresh(part, context(index)));
  }
  return { element, update };
}

/** With the keys of its neighbour, or those that the schema asks for; without values. */
const blank = (shape, like) =>
  Object.fromEntries((like ? Object.keys(like) : shape.first).map((key) => [key, initial(define(shape, key))]));

function card(index, { plugin, shapes, replace, drop }) {
  const id = unique("part");
  const title = h("h3", { id });
  const naming = fieldSet("partition", shapes.partition, plugin);
  const fields = fieldSet("offset", shapes.offset, plugin);
  const remove = h("button.button.small.quiet", { type: "button", "data-action": "remove-partition" });
  const general = h("div");
  const gone = h("p.hint", "Removed: without an offset, the next start behaves as the first one for this partition.");
  const element = h(
    "section.part",
    { "aria-labelledby": id, "data-partition": index },
    h("header.part-head", title, remove),
    general,
    naming.element,
    fields.element,
    gone,
  );

  function refresh(part, { current, problems, isNew }) {
    const removed = part.offset === null;
    say(title, partitionName(part.partition) || `Partition ${index + 1}`);
    toggle(element, "data-removed", removed ? "yes" : null);
    naming.element.hidden = !isNew;
    fields.element.hidden = removed;
    gone.hidden = !removed;
    say(remove, removed ? "Keep it" : isNew ? "Discard" : "Remove offset");
    remove.onclick = () => (isNew ? drop(index) : replace(index, { ...part, offset: removed ? current : null }));
    const set = (key) => (value) => replace(index, { ...part, [key]: value });
    const left = naming.refresh(part.partition, { base: {}, problems: [], set: set("partition") });
    const rest = fields.refresh(part.offset ?? {}, {
      base: current ?? {},
      problems: problems.concat(left),
      set: set("offset"),
    });
    keyed(
      general,
      rest,
      (problem) => `${problem.path} ${problem.message}`,
      (problem) => ({ element: h("p.problem", { role: "alert" }, sentence(problem)) }),
    );
  }
  return { element, refresh };
}

export const partitionName = (partition) =>
  Object.entries(partition ?? {})
    .map(([key, value]) => `${key} ${shown(value)}`)
    .join(", ");

export const sentence = ({ message, hint }) => [message, hint].filter(Boolean).join(" ");

const lastStep = (path) =>
  String(path ?? "")
    .split(/[./[\]]+/)
    .filter(Boolean)
    .at(-1) ?? "";

function fieldSet(name, shape, plugin) {
  const list = h("div.offset-fields");
  const more = h("select", { "aria-label": `Add a field to the ${name}`, "data-action": "add-field" });
  const own = h("input.mono", {
    type: "text",
    placeholder: shape.patterns.map(({ field }) => field.title).find(Boolean) ?? "key",
    "aria-label": "Name of the new key",
    spellcheck: "false",
  });
  const addOwn = h("button.button.small", { type: "button" }, "Add key");
  const free = h("div.row.add-key", own, addOwn);
  const element = h("div", { "data-part": name }, list, h("div.row.adding", more, free));
  let present = {};
  let send = () => {};

  const meant = (key) => define(shape, key);
  const put = (key, value) => send({ ...present, [key]: value });
  const cut = (key) => send(Object.fromEntries(Object.entries(present).filter(([each]) => each !== key)));
  function focusOn(key) {
    requestAnimationFrame(() =>
      list.querySelector(`[data-key="${CSS.escape(key)}"] :is(input, select, textarea)`)?.focus(),
    );
  }
  more.addEventListener("change", () => {
    const key = more.value;
    if (key === OWN) return void ((free.hidden = false), own.focus());
    if (!key) return undefined;
    put(key, initial(meant(key)));
    return focusOn(key);
  });
  addOwn.addEventListener("click", () => {
    const key = own.value.trim();
    if (!key || key in present) return own.focus();
    own.value = "";
    put(key, initial(meant(key)));
    focusOn(key);
  });
  own.addEventListener("keydown", (event) => event.key === "Enter" && (event.preventDefault(), addOwn.click()));

  function refresh(value, { base, problems, set }) {
    [present, send] = [value, set];
    const order = [...shape.fields.keys()];
    const keys = Object.keys(value); // in the order of the document, as the JSON beside shows them
    const mine = (key) => problems.filter((problem) => lastStep(problem.path) === key);
    const absent = order.filter((key) => !(key in value) && problems.some((problem) => lastStep(problem.path) === key));
    keyed(
      list,
      keys.map((key) => ({ key })),
      ({ key }) => `${key} ${kind(meant(key), value[key])}`,
      ({ key }) => offsetField(meant(key), value[key], plugin),
    );
    for (const key of keys)
      list.tidelogRows.get(`${key} ${kind(meant(key), value[key])}`).refresh(value[key], {
        before: base[key],
        had: key in base,
        problems: mine(key),
        put: (next) => put(key, next),
        cut: () => cut(key),
      });
    offer(order.filter((key) => !(key in value)));
    free.hidden = Boolean(shape.fields.size) && more.value !== OWN;
    return problems.filter(
      (problem) => absent.includes(lastStep(problem.path)) || !keys.includes(lastStep(problem.path)),
    );
  }

  function offer(keys) {
    more.hidden = !shape.fields.size || (!keys.length && !shape.patterns.length);
    const wanted = keys.join("\n");
    if (more.dataset.keys === wanted) return void (more.value = "");
    more.dataset.keys = wanted;
    more.replaceChildren(
      h("option", { value: "" }, "Add a field…"),
      ...keys.map((key) => h("option", { value: key }, label(meant(key)))),
      ...(shape.patterns.length ? [h("option", { value: OWN }, "another key…")] : []),
    );
  }
  return { element, refresh };
}

const OWN = "*"; // in the list of fields: a key that the person names
const label = (field) => (field.title ? `${field.key}: ${field.title}` : field.key);

function offsetField(field, first, plugin) {
  const id = unique("offset");
  const told = `${id}-told`;
  const error = h("span.problem", { id: told, "aria-live": "polite" });
  const read = h("span.reading");
  const was = h("span.was");
  const choices = kind(field, first) === "select" ? choicesWith(field, first) : [];
  const control = makeControl(field, first, choices, { id, "aria-describedby": told, "data-field": field.key });
  const cutButton = h(
    "button.cut",
    { type: "button", "aria-label": `Remove ${field.key}`, title: "Remove this field" },
    "×",
  );
  const element = h(
    "div.offset-field",
    { "data-key": field.key },
    h(
      "label",
      { for: id },
      h("code", field.key),
      h("span.field-title", field.title),
      field.unknown && h("small.unknown", "not in the schema"),
    ),
    h("div.offset-control", control, cutButton),
    error,
    h("div.under", read, was),
    field.meaning && h("span.hint", field.meaning),
  );
  let now = first;
  let context = null;

  control.addEventListener("input", () => {
    if (control.tagName === "SELECT") return context.put(choices[control.selectedIndex]);
    const { value, problem } = typed(field, control.value, now);
    if (problem && kind(field, now) === "json") return say(error, problem); // half a document is nobody's value
    return context.put(value);
  });
  cutButton.addEventListener("click", () => context.cut());

  function refresh(value, next) {
    [now, context] = [value, next];
    const text = control.tagName === "SELECT" ? stringify(value) : shown(value);
    const untouched =
      control.tagName !== "SELECT" &&
      document.activeElement === control &&
      same(typed(field, control.value, value).value, value);
    if (!untouched && control.value !== text) control.value = text;
    const local = control.tagName === "SELECT" ? "" : typed(field, control.value, value).problem;
    const wrong = next.problems.map(sentence).join(" ") || local;
    say(error, wrong);
    toggle(control, "aria-invalid", wrong ? "true" : null);
    say(read, reading(plugin, field.key, value));
    toggle(read, "title", exactly(field.key, value) || null);
    const changed = next.had && !same(next.before, value);
    say(was, changed ? `was ${shown(next.before)}` : "");
    toggle(element, "data-changed", changed || !next.had ? "yes" : null);
    cutButton.hidden = field.required;
  }
  return { element, refresh };
}

/** What can be chosen, and what stands there now even if the schema does not know it. */
function choicesWith(field, value) {
  const known = options(field);
  return known.some((each) => same(each, value)) ? known : [...known, value];
}

function makeControl(field, value, choices, common) {
  const twins = (each) => choices.filter((other) => String(other) === String(each)).length > 1;
  if (choices.length)
    return h(
      "select",
      common,
      choices.map((each) =>
        h(
          "option",
          { value: stringify(each) },
          twins(each) ? `${each} (${typeof each === "string" ? "text" : typeof each})` : String(each),
        ),
      ),
    );
  const text = shown(value);
  const plain = {
    ...common,
    spellcheck: "false",
    autocomplete: "off",
    placeholder: field.example === null ? "" : `for example ${shown(field.example)}`,
  };
  if (kind(field, value) === "json" || text.length > 44)
    return h("textarea.mono", { ...plain, rows: Math.min(8, Math.max(2, Math.ceil(text.length / 44))) });
  const whole = field.types.includes("integer") && !field.types.includes("string");
  return h("input.mono", { ...plain, type: "text", inputmode: whole ? "numeric" : null });
}
