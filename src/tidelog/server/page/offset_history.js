// Who changed an offset, when, from what to what, and why. Changes are only ever added; the last one can be taken back,
// and taking back is a change too.

import { api } from "./api.js";
import { diffLine, diffTable } from "./diff.js";
import { fillWith, h, keyed } from "./dom.js";
import { time } from "./format.js";
import { partitionName } from "./offset_form.js";
import { button, confirm, empty, failure, icon, panel, skeleton, toast } from "./parts.js";

const PAGE = 20;
const ACTIONS = { set: "changed", delete: "removed", undo: "undo", import: "imported" };

export function historyPanel(name, plugin, { onUndone, stopped }) {
  const list = h("ol.history", { "aria-label": "Changes, newest first" });
  const place = h("div", skeleton(3));
  const older = button("Older changes", () => more(), { class: "small", hidden: true });
  const undo = button("Undo the last change", () => takeBack(), { "data-action": "undo", hidden: true });
  const element = panel("History", { name: "history", extra: undo }, list, place, older);
  let changes = [];

  function draw() {
    const undone = new Set(changes.map((each) => each.undoes).filter((id) => id !== null && id !== undefined));
    keyed(
      list,
      changes,
      (each) => `${each.id} ${each.applied_at ?? stopped()} ${undone.has(each.id)}`,
      (each) => entry(each, plugin, undone.has(each.id), stopped()),
    );
    undo.hidden = !changes.length;
    fillWith(
      place,
      !changes.length &&
        empty(
          "Nobody has changed these offsets.",
          "Every change made here, over REST or on the command line is listed with who, when and why, and can be undone.",
        ),
    );
  }

  async function load() {
    try {
      changes = (await api.offsetHistory(name)).changes ?? [];
      older.hidden = changes.length < PAGE;
      draw();
    } catch (error) {
      if (!changes.length) fillWith(place, failure(error, load));
    }
  }

  async function more() {
    const next = (await api.offsetHistory(name, changes.at(-1).id)).changes ?? [];
    changes = [...changes, ...next];
    older.hidden = next.length < PAGE;
    draw();
  }

  async function takeBack() {
    if (!stopped())
      return toast(`Offsets can be changed only while the connector is stopped. Stop ${name} first.`, "error");
    const last = changes[0];
    const sure = await confirm({
      title: "Undo the last change?",
      name: "undo",
      why: true,
      verb: "Undo",
      tone: "primary",
      text: [
        `The offset of ${partitionName(last.partition)} becomes what it was before “${last.why || ACTIONS[last.action]}”. This is a change of its own and appears in the history.`,
      ],
    });
    if (!sure) return undefined;
    const answer = await api.undoOffsets(name, sure.why);
    toast(answer?.message ?? "The last change is undone.");
    await load();
    return onUndone();
  }

  load();
  const waiting = () => changes.some((each) => !each.applied_at);
  return { element, load, draw: () => changes.length && draw(), waiting };
}

function entry(change, plugin, undone, still) {
  const waits = change.applied_at === null || change.applied_at === undefined;
  const status = undone
    ? "undone since"
    : waits
      ? still
        ? "waits for the next start"
        : "waits for its first batch"
      : ["in effect since ", time(change.applied_at)];
  const element = h(
    "li.change",
    { "data-change": change.id, "data-undone": undone ? "yes" : null },
    h(
      "div.change-head",
      h("span.tag", { "data-action-kind": change.action }, ACTIONS[change.action] ?? change.action),
      h("strong", change.who || "somebody"),
      time(change.at),
      h("span.sub", partitionName(change.partition)),
      h("span.sub.change-status", waits && !undone && icon("warning"), status),
    ),
    change.why && h("p.why", change.why),
    h(
      "details",
      h("summary", diffLine(change.before, change.after)),
      diffTable(plugin, change.before, change.after ?? {}, `Change ${change.id}`),
    ),
  );
  return { element };
}
