// Elements from plain calls. Everything a caller hands over becomes a text node or an attribute, never markup: what a
// server or a database says can not become part of the page's code.

const SVG = "http://www.w3.org/2000/svg";

/** h("p.note", { id: "x", onclick }, "text", child, [more]) */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name || "div"), classes, rest);
}

export function svg(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, rest);
}

function fill(element, classes, rest) {
  if (classes.length) element.classList.add(...classes);
  const [first, ...others] = rest;
  const given = isOptions(first) ? first : {};
  for (const [key, value] of Object.entries(given)) set(element, key, value);
  element.append(...nodes(isOptions(first) ? others : rest));
  return element;
}

const isOptions = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);

export function set(element, key, value) {
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (value === false || value === null || value === undefined) element.removeAttribute(key);
  else if (key === "class") element.classList.add(...value.split(" "));
  else if (key === "value") element.value = value;
  else element.setAttribute(key, value === true ? "" : value);
}

const nodes = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");

export function fillWith(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/** Writes only what differs: an untouched node keeps selection, focus and the peace of a screen reader. */
export function say(element, text) {
  const wanted = String(text ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function toggle(element, attribute, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(attribute);
  else if (element.getAttribute(attribute) !== String(value)) element.setAttribute(attribute, value);
}

/** A list that follows its items: what stays is updated in place, what is new is made, what is gone goes. */
export function keyed(parent, items, keyOf, make) {
  parent.tidelogRows ??= new Map();
  const old = parent.tidelogRows;
  const kept = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const row = old.get(key) ?? make(item);
    row.update?.(item);
    kept.set(key, row);
    if (row.element === place) place = place.nextSibling;
    else parent.insertBefore(row.element, place);
  }
  for (const [key, row] of old) if (!kept.has(key)) row.element.remove();
  parent.tidelogRows = kept;
}

let counter = 0;
export const unique = (stem) => `${stem}-${++counter}`;

/** Calls `run` once things have been quiet for a while. */
export function debounce(run, ms) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), ms);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Calls `run` at most once in `ms`; what comes meanwhile is one call at the end. */
export function throttle(run, ms) {
  let timer = 0;
  return () => {
    if (!timer) timer = setTimeout(() => ((timer = 0), run()), ms);
  };
}

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea.offscreen", { value: text, "aria-hidden": "true" }); // plain http beyond loopback has no clipboard
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
