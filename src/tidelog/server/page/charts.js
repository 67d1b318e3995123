// Small charts of one value over time, drawn as SVG. Time goes by the clock, so a stretch without measurements is a gap
// and not a line through nothing. The value under the pointer, or under the arrow keys, is told in words.

import { h, say, set, svg, unique } from "./dom.js";
import { clock, utc } from "./format.js";

const HEIGHT = 132;
const PAD = { left: 52, right: 8, top: 10, bottom: 20 };
const GAP_MS = 12000;

/** Units in which numbers of a kind are round: sizes, durations in milliseconds, or plain ones. */
const UNITS = { size: [1, 1024, 1024 ** 2, 1024 ** 3, 1024 ** 4], time: [1, 1000, 60000, 3600000], plain: [1] };
const SHORT = { 60000: "min", 3600000: "h" };

/** Round numbers up to at least `top`: [0, 250, 500, 750, 1000]. */
export function ticks(top, kind = "plain") {
  if (!(top > 0)) return [0];
  const unit = UNITS[kind].findLast((each) => each <= top) ?? 1;
  const span = top / unit;
  const power = 10 ** Math.floor(Math.log10(span));
  const step = [0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((n) => n * power).find((n) => span / n <= 4) ?? 5 * power;
  return Array.from({ length: Math.ceil(span / step - 1e-9) + 1 }, (_, i) => i * step * unit);
}

/** Runs of points without a gap between them. Points are [ms, value]; a null value is a gap too. */
export function runs(points, gap = GAP_MS) {
  const found = [];
  let last = null;
  for (const point of points) {
    if (point[1] === null || point[1] === undefined) last = null;
    else {
      if (last && point[0] - last[0] <= gap) found.at(-1).push(point);
      else found.push([point]);
      last = point;
    }
  }
  return found;
}

function path(run, x, y) {
  return run.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("");
}

/** The last minutes as a line without axes; decoration beside the number that says the same. */
export function sparkline() {
  const [width, height] = [96, 26];
  const area = svg("path.spark-area");
  const line = svg("path.spark-line");
  const element = svg(
    "svg.spark",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", focusable: "false" },
    area,
    line,
  );
  return {
    element,
    update(points, now) {
      const from = now - 120000;
      const shown = points.filter(([at]) => at >= from);
      const top = Math.max(1, ...shown.map(([, value]) => value ?? 0));
      const x = (at) => ((at - from) / 120000) * width;
      const y = (value) => height - 2 - (value / top) * (height - 5);
      const parts = runs(shown).filter((run) => run.length > 1);
      set(line, "d", parts.map((run) => path(run, x, y)).join(""));
      set(
        area,
        "d",
        parts
          .map(
            (run) =>
              `${path(run, x, y)}L${x(run.at(-1)[0]).toFixed(1)},${height}L${x(run[0][0]).toFixed(1)},${height}Z`,
          )
          .join(""),
      );
    },
  };
}

/** A chart with axes. `unit` formats a value; `kind` is plain, size or time. */
export function chart({ title, name, unit, kind = "plain", seconds = 600 }) {
  const now = h("strong.chart-now", { "data-value": name });
  const note = h("span.chart-note");
  const told = h("p.chart-told", { "aria-live": "off" });
  const grid = svg("g");
  const areas = svg("path.chart-area");
  const lines = svg("path.chart-line");
  const dots = svg("g");
  const cross = svg("line.chart-cross", { y1: PAD.top, y2: HEIGHT - PAD.bottom });
  const spot = svg("circle.chart-spot", { r: 3.5 });
  const pointer = svg("g", { visibility: "hidden" }, cross, spot);
  const picture = svg(
    "svg.chart-picture",
    { role: "img", tabindex: "0", height: HEIGHT, width: "100%" },
    grid,
    areas,
    lines,
    dots,
    pointer,
  );
  const id = unique("chart");
  const element = h(
    "section.panel.chart",
    { "aria-labelledby": id, "data-chart": name },
    h("header.chart-head", h("h2", { id }, title), now, note),
    h("div.chart-frame", picture, told),
  );
  let points = [];
  let scale = null;
  let held = null;

  function draw() {
    const width = picture.clientWidth || 320;
    const end = Math.max(Date.now(), points.at(-1)?.[0] ?? 0);
    const start = end - seconds * 1000;
    const shown = points.filter(([at]) => at >= start);
    const values = shown.map(([, value]) => value).filter((value) => value !== null && value !== undefined);
    const marks = ticks(Math.max(0, ...values), kind);
    const top = marks.at(-1) || 1;
    const x = (at) => PAD.left + ((at - start) / (end - start)) * (width - PAD.left - PAD.right);
    const y = (value) => HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom);
    scale = { x, y, shown: shown.filter(([, value]) => value !== null && value !== undefined), start, end, width };
    set(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    grid.replaceChildren(
      ...axisY(marks, y, width, (mark) => label(mark, top, kind) ?? unit(mark)),
      ...axisX(start, end, x, width),
    );
    const parts = runs(shown);
    set(
      lines,
      "d",
      parts
        .filter((run) => run.length > 1)
        .map((run) => path(run, x, y))
        .join(""),
    );
    set(
      areas,
      "d",
      parts
        .filter((run) => run.length > 1)
        .map((run) => `${path(run, x, y)}L${x(run.at(-1)[0]).toFixed(1)},${y(0)}L${x(run[0][0]).toFixed(1)},${y(0)}Z`)
        .join(""),
    );
    dots.replaceChildren(
      ...parts
        .filter((run) => run.length === 1)
        .map(([[at, value]]) => svg("circle.chart-dot", { cx: x(at), cy: y(value), r: 2 })),
    );
    const last = points.at(-1)?.[1];
    say(now, unit(last));
    say(note, values.length ? `peak ${unit(Math.max(...values))}` : "no measurements yet");
    set(
      picture,
      "aria-label",
      values.length
        ? `${title}, last ${seconds / 60} minutes: now ${unit(last)}, peak ${unit(Math.max(...values))}. Arrow keys read single values.`
        : `${title}: no measurements yet`,
    );
    if (held !== null) point(held);
  }

  function point(at) {
    if (!scale?.shown.length) return leave();
    held = at;
    const near = scale.shown.reduce((best, each) => (Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best));
    const x = scale.x(near[0]);
    (set(cross, "x1", x), set(cross, "x2", x), set(spot, "cx", x), set(spot, "cy", scale.y(near[1])));
    set(pointer, "visibility", "visible");
    say(told, `${unit(near[1])} · ${clock(near[0])}`);
    told.title = utc(near[0]);
    told.style.left = `${Math.min(Math.max(x, PAD.left + 62), scale.width - 70)}px`;
    return near;
  }

  function leave() {
    held = null;
    set(pointer, "visibility", "hidden");
    say(told, "");
  }

  function step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") return leave();
    if (!move || !scale?.shown.length) return;
    event.preventDefault();
    told.setAttribute("aria-live", "polite");
    const at =
      held === null ? scale.shown.length - 1 + (move < 0 ? 0 : 1) : scale.shown.findIndex(([t]) => t >= held) + move;
    point(scale.shown[Math.min(Math.max(at, 0), scale.shown.length - 1)][0]);
  }

  picture.addEventListener("pointermove", (event) => {
    const along =
      (event.clientX - picture.getBoundingClientRect().left - PAD.left) / (scale.width - PAD.left - PAD.right);
    told.setAttribute("aria-live", "off");
    point(scale.start + Math.min(Math.max(along, 0), 1) * (scale.end - scale.start));
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", step);
  const resized = new ResizeObserver(draw);
  resized.observe(picture);

  return {
    element,
    update(measured) {
      points = measured;
      draw();
    },
    stop: () => resized.disconnect(),
  };
}

/** Minutes and hours as one number, "1.5 min": a mark has little room. */
function label(mark, top, kind) {
  const unit = kind === "time" ? [3600000, 60000].find((each) => each <= top) : 0;
  return unit ? `${Number((mark / unit).toFixed(2))} ${SHORT[unit]}` : null;
}

function axisY(marks, y, width, unit) {
  return marks.flatMap((mark) => [
    svg("line.chart-rule", { x1: PAD.left, x2: width - PAD.right, y1: y(mark), y2: y(mark) }),
    svg("text.chart-label", { x: PAD.left - 8, y: y(mark) + 3.5, "text-anchor": "end" }, mark === 0 ? "0" : unit(mark)),
  ]);
}

function axisX(start, end, x, width) {
  const step = width > 260 ? 120000 : 240000;
  const marks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step)
    if (x(at) > PAD.left + 12 && x(at) < width - 18) marks.push(at);
  return marks.map((at) =>
    svg("text.chart-label", { x: x(at), y: HEIGHT - 4, "text-anchor": "middle" }, clock(at).slice(0, 5)),
  );
}
