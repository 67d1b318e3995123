// The offsets of a connector: a draft, shown as a typed form and as raw JSON at once, checked by the server as one types,
// compared with what stands, and applied only with its consequence in view. Reading and trying out is always allowed;
// applying only while the connector is stopped.

import { api } from "../api.js";
import { debounce, fillWith, h, say, throttle, toggle, unique } from "../dom.js";
import { parse, same, stringify } from "../exact.js";
import * as fleet from "../fleet.js";
import { listen } from "../live.js";
import { offsetForm } from "../offset_form.js";
import { historyPanel } from "../offset_history.js";
import { reviewPanel } from "../offset_review.js";
import { button, confirm, failure, note, panel, skeleton, stateWord, toast } from "../parts.js";
import { shapes } from "../schema.js";

export function offsetsView(root, name, ended) {
  const place = h("div", skeleton(8));
  root.append(place);
  let opened = null;

  async function load() {
    const plugin = fleet.connector(name)?.plugin ?? "";
    try {
      const [schema, answer] = await Promise.all([api.offsetSchema(plugin), api.offsets(name)]);
      if (!ended.aborted) opened = open(place, { name, plugin, schema, offsets: answer.offsets ?? [] });
    } catch (error) {
      fillWith(place, failure(error, load));
    }
  }

  load();
  const off = fleet.onChange((changed) => (changed === null || changed === name) && opened?.state());
  const deaf = listen((event) => {
    if (event.type === "poll") opened?.reread();
    else if (event.type === "offsets" && event.connector === name) opened?.heard(event.data);
  });
  return { stop: () => (off(), deaf(), opened?.stop()) };
}

function open(place, { name, plugin, schema, offsets }) {
  let current = offsets;
  let draft = offsets;
  let imported = false;
  let newer = null;
  let preview = null; // {sent, parts} of the last answer
  let asked = new AbortController();

  const banner = h("div.banner");
  const fresh = h("div");
  const form = offsetForm({ plugin, shapes: shapes(schema), change: edit });
  const raw = h("textarea.raw.mono", {
    id: unique("raw"),
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "data-field": "raw",
    "aria-describedby": unique("rawtold"),
  });
  const rawError = h("p.problem", { id: raw.getAttribute("aria-describedby"), "aria-live": "polite" });
  const review = reviewPanel({ name, plugin, apply, discard: () => edit(current, { from: "discard" }) });
  const history = historyPanel(name, plugin, { onUndone: reread, stopped });
  const file = h("input.offscreen", {
    type: "file",
    accept: ".json,application/json",
    "aria-label": "Offsets file to import",
    tabindex: "-1",
    "data-field": "import",
  });
  const tools = h(
    "div.row",
    button("Export", download, { class: "small", "data-action": "export" }),
    button("Import…", async () => file.click(), { class: "small", "data-action": "import" }),
    file,
    button("Reset all…", reset, { class: "small quiet-danger", "data-action": "reset-offsets" }),
  );
  const formPanel = panel("Offset", { name: "offset-form", extra: tools }, form.element);
  const rawPanel = panel(
    "Raw JSON",
    { name: "offset-raw" },
    h("label.offscreen", { for: raw.id }, "Offsets as JSON"),
    raw,
    rawError,
  );
  fillWith(place, banner, fresh, h("div.editor", formPanel, rawPanel), review.element, history.element);

  function stopped() {
    return fleet.connector(name)?.state === "STOPPED";
  }

  const known = (part) => current.find((each) => same(each.partition, part.partition));
  const changes = () => draft.filter((part) => !known(part) || !same(known(part).offset, part.offset));

  function edit(next, { from = "form" } = {}) {
    draft = next;
    if (from === "discard") ((imported = false), fresh.replaceChildren());
    if (from !== "raw") ((raw.value = stringify({ offsets: draft }, 2)), rawProblem(""));
    preview = null;
    draw();
    later.cancel();
    if (changes().length) later();
  }

  function rawProblem(text) {
    say(rawError, text);
    toggle(raw, "aria-invalid", text ? "true" : null);
    formPanel.toggleAttribute("inert", Boolean(text));
    draw();
  }

  raw.addEventListener("input", () => {
    try {
      const next = readDocument(raw.value);
      rawProblem("");
      edit(next, { from: "raw" });
    } catch (error) {
      later.cancel();
      rawProblem(`${error.message} The form waits until this can be read.`);
    }
  });

  const later = debounce(ask, 350);
  async function ask() {
    asked.abort();
    asked = new AbortController();
    const sent = changes();
    try {
      const answer = await api.previewOffsets(name, sent, asked.signal);
      preview = { sent, parts: answer.parts ?? [], problems: answer.problems ?? [] };
    } catch (error) {
      if (error.name === "AbortError") return;
      preview = { sent, parts: [], error };
    }
    draw();
  }

  function draw() {
    const sent = changes();
    const context = (index) => {
      const at = preview ? preview.sent.indexOf(draft[index]) : -1;
      const whole = (preview?.problems ?? []).filter(
        ({ path }) => at >= 0 && String(path).startsWith(`offsets[${at}]`),
      );
      return {
        current: known(draft[index])?.offset,
        isNew: !known(draft[index]),
        problems: [...(preview?.parts[at]?.problems ?? []), ...whole],
      };
    };
    form.update(draft, context);
    review.update({
      sent,
      preview,
      stopped: stopped(),
      state: fleet.connector(name)?.state,
      unreadable: Boolean(rawError.textContent),
      imported,
    });
  }

  function state() {
    const now = fleet.connector(name)?.state ?? "";
    if (banner.dataset.state === now) return;
    banner.dataset.state = now;
    fillWith(banner, now !== "STOPPED" && runningNote(name, now));
    draw();
    history.draw();
    if (now === "STOPPED") reread({ own: true });
  }

  /** A batch moves the offset, an edit too; the first is ordinary while the connector runs and needs no word. */
  const advance = throttle(() => reread({ quiet: !stopped(), own: true }), 1000);
  function heard(data) {
    if ("batch_id" in data) advance();
    else reread();
  }

  async function reread({ quiet = false, own = false } = {}) {
    const answer = (await api.offsets(name)).offsets ?? [];
    const untouched = !changes().length && !rawError.textContent;
    if (same(answer, current)) return quiet && !history.waiting() ? undefined : history.load();
    newer = answer;
    if (untouched) takeNewer();
    else if (!quiet && own) rebase();
    else if (!quiet)
      fillWith(
        fresh,
        note(
          "warning",
          h("p", "The offsets have changed meanwhile. Your draft is compared with what stood before."),
          h(
            "p",
            button(
              "Compare with what stands now",
              async () => ((current = newer), fresh.replaceChildren(), edit(draft)),
              { class: "small" },
            ),
            " ",
            button("Drop the draft", async () => takeNewer(), { class: "small" }),
          ),
        ),
      );
    return quiet && !history.waiting() ? undefined : history.load();
  }

  /** The connector itself has moved on: what was edited stays edited, the rest follows. */
  function rebase() {
    if (rawError.textContent) return void (current = newer);
    const next = rebased(current, draft, newer);
    current = newer;
    fillWith(
      fresh,
      note(
        "info",
        h(
          "p",
          "The connector has delivered more since you began. Your edits stay; they are compared with where it stands now.",
        ),
      ),
    );
    edit(next);
  }

  function takeNewer() {
    [current, newer] = [newer, null];
    fresh.replaceChildren();
    edit(current, { from: "discard" });
  }

  async function apply(why) {
    const sent = changes();
    const answer = await (imported ? api.importOffsets : api.setOffsets)(name, sent, why);
    toast(answer?.message ?? "The offsets are changed; they hold from the next start on.");
    imported = false;
    await settle();
  }

  async function settle() {
    newer = (await api.offsets(name)).offsets ?? [];
    takeNewer();
    await history.load();
  }

  async function reset() {
    if (!stopped())
      return toast(`Offsets can be changed only while the connector is stopped. Stop ${name} first.`, "error");
    const sure = await confirm({
      title: "Reset all offsets?",
      name: "reset",
      why: true,
      typed: name,
      verb: "Reset",
      text: [
        "All partitions lose their offset. The next start behaves as the first one: with a new snapshot, if the connector is set up to make one. It can be undone.",
      ],
    });
    if (!sure) return undefined;
    const answer = await api.deleteOffsets(name, sure.why);
    toast(answer?.message ?? "All offsets are removed.");
    return settle();
  }

  async function download() {
    const text = stringify(await api.exportOffsets(name), 2);
    const url = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/json" }));
    const link = h("a", { href: url, download: `${name}-offsets.json` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    file.value = "";
    if (!chosen) return;
    try {
      const next = readDocument(await chosen.text());
      imported = true;
      edit([...next, ...draft.filter((part) => !next.some((each) => same(each.partition, part.partition)))]);
      toast(`${chosen.name} is loaded as a draft. Look at the comparison, then apply it.`);
    } catch (error) {
      toast(`${chosen.name} can't be imported. ${error.message}`, "error");
    }
  });

  edit(current, { from: "load" });
  state();
  return { state, reread, heard, stop: () => (asked.abort(), later.cancel()) };
}

function runningNote(name, state) {
  const stop = button(`Stop ${name}`, async () => (await api.stop(name), fleet.refreshStatus(name)), {
    class: "small primary",
    "data-action": "stop-for-offsets",
  });
  return h(
    "div",
    { "data-refused": "" },
    note(
      "info",
      h(
        "p",
        h("strong", "Offsets can be changed only while the connector is stopped. "),
        `It is ${stateWord(state).toLowerCase()}, so what it delivers next would overwrite the change. You can look and try out meanwhile.`,
      ),
      h("p", stop),
    ),
  );
}

/** The list of offsets in a document, checked for its outer form; the rest is the server's to check. */
function readDocument(text) {
  const read = parse(text);
  const list = Array.isArray(read) ? read : read?.offsets;
  if (!Array.isArray(list)) throw new SyntaxError('The document needs a list under "offsets".');
  for (const [index, part] of list.entries()) {
    const told = `Entry ${index + 1} of "offsets"`;
    if (!isObject(part)) throw new SyntaxError(`${told} must be an object with "partition" and "offset".`);
    if (!isObject(part.partition)) throw new SyntaxError(`${told} needs a "partition" that is an object.`);
    if (part.offset !== null && !isObject(part.offset))
      throw new SyntaxError(`${told} needs an "offset" that is an object, or null to remove it.`);
  }
  return list;
}

/** `draft` was made from `base`; as if it had been made from `newer`. */
export function rebased(base, draft, newer) {
  const find = (list, part) => list.find((each) => same(each.partition, part.partition));
  const mine = draft.map((part) => {
    const [was, is] = [find(base, part)?.offset, find(newer, part)?.offset];
    if (!was || !is || part.offset === null) return part;
    const kept = Object.entries(is).filter(([key]) => key in part.offset || !(key in was));
    const edited = Object.entries(part.offset).filter(([key, value]) => !(key in was) || !same(was[key], value));
    return { ...part, offset: { ...Object.fromEntries(kept), ...Object.fromEntries(edited) } };
  });
  return [...mine, ...newer.filter((part) => !find(draft, part) && !find(base, part))];
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
