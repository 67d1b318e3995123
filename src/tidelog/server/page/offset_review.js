// Before a change is applied: what differs, what it means in plain words, and why it is made. The button is never merely
// grey: beside it stands what is still missing.

import { diffTable } from "./diff.js";
import { fillWith, h, say, toggle, unique } from "./dom.js";
import { partitionName, sentence } from "./offset_form.js";
import { button, note, panel, stateWord } from "./parts.js";

const DIRECTIONS = {
  rewind: "Rewind",
  skip: "Skip forward",
  same: "No movement",
  unknown: "Direction not known",
  anew: "Begin anew",
};
const KINDS = { rewind: "warning", skip: "warning", same: "info", unknown: "warning", anew: "warning" };

export function reviewPanel({ name, plugin, apply, discard }) {
  const parts = h("div.review-parts", { "aria-live": "polite" });
  const why = h("input", {
    type: "text",
    id: unique("why"),
    autocomplete: "off",
    placeholder: "for example: skip the broken import of last night",
    "data-field": "why",
  });
  const reason = h("p.hint", { id: unique("reason"), "data-reason": "" });
  const go = button("Apply change", () => attempt(), {
    class: "primary",
    "data-action": "apply",
    "aria-describedby": reason.id,
  });
  const drop = button("Discard draft", async () => (discard(), (why.value = "")), { "data-action": "discard" });
  const problem = h("div");
  const acting = h(
    "div",
    h("label.field", { for: why.id }, h("span", "Why ", h("small", "kept in the history")), why),
    problem,
    h("div.row", go, drop, reason),
  );
  const element = panel("Review", { name: "review" }, parts, acting);
  let missing = "";
  let key = "";

  async function attempt() {
    problem.replaceChildren();
    if (missing) return void (fillWith(problem, note("warning", h("p", missing))), (reason.hidden = true));
    try {
      await apply(why.value.trim());
      why.value = "";
    } catch (error) {
      fillWith(problem, note("error", h("p", error.message)));
    }
    return undefined;
  }

  function update({ sent, preview, stopped, state, unreadable, imported }) {
    const next = preview ? preview : sent.length;
    missing = lacking({ sent, preview, stopped, state, unreadable, name });
    say(reason, missing);
    reason.hidden = problem.hasChildNodes() && next === key;
    toggle(go, "aria-disabled", missing ? "true" : null);
    acting.hidden = !sent.length && !unreadable;
    if (next === key) return;
    key = next;
    problem.replaceChildren();
    if (preview || !sent.length) toggle(parts, "data-waiting", null);
    if (!sent.length)
      return void fillWith(
        parts,
        h(
          "p.hint",
          "Nothing is changed yet. Edit a field or the JSON; what it means appears here before anything is applied.",
        ),
      );
    if (!preview) return void toggle(parts, "data-waiting", "yes");
    fillWith(
      parts,
      preview.error && note("error", h("p", preview.error.message)),
      preview.problems?.length > 0 &&
        note(
          "error",
          preview.problems.map((each) => h("p", sentence(each))),
        ),
      imported && h("p.hint", "From an imported file."),
      preview.parts.map((part) => consequence(plugin, part)),
    );
  }
  return { element, update };
}

function lacking({ sent, preview, stopped, state, unreadable, name }) {
  if (unreadable) return "The JSON can't be read yet.";
  if (!sent.length) return "";
  if (!stopped) return `${name} is ${stateWord(state).toLowerCase()}. Stop it to apply this.`;
  if (!preview) return "The server is looking at it…";
  if (preview.error) return "The server could not check this change.";
  if (preview.problems?.length || preview.parts.some((part) => part.problems?.length))
    return "Mend what is marked first.";
  if (preview.parts.some((part) => part.refused)) return "This change would be refused; see above.";
  return "";
}

function consequence(plugin, part) {
  const problems = part.problems ?? [];
  const title = partitionName(part.partition);
  const said = part.refused
    ? note("error", h("p", h("strong", "Refused. "), sentence({ message: part.refused, hint: part.hint })))
    : problems.length
      ? note("error", h("p", h("strong", "Not valid yet. "), problems.map(sentence).join(" ")))
      : note(
          KINDS[part.direction] ?? "info",
          h("p", h("strong", `${DIRECTIONS[part.direction] ?? "Change"}. `), part.consequence),
          part.direction === "same" &&
            h("p.hint", "If it should move, change the field that says where reading goes on, too."),
        );
  return h(
    "section.review-part",
    { "data-direction": part.direction, "aria-label": `Change of ${title}` },
    h("h3", title),
    h("div", { "data-consequence": "" }, said),
    part.after === null
      ? h("p.hint", "The whole offset of this partition goes.")
      : diffTable(plugin, part.before, part.after, `Before and after for ${title}`),
  );
}
