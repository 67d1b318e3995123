// What an offset may look like, read from the plugin's JSON Schema: one field per key with its title and meaning, how a
// typed text becomes a value, and how a value is shown. The schema guides; the server decides.

import { parse, stringify } from "./exact.js";

/** {partition, offset}: the two object schemas, however the plugin's document wraps them. */
export function shapes(schema) {
  const whole = resolve(schema ?? {}, schema);
  const items = whole.properties?.offsets
    ? resolve(resolve(whole.properties.offsets, schema).items ?? {}, schema)
    : whole;
  const { partition, offset } = items.properties ?? {};
  if (partition || offset) return { partition: shape(partition ?? {}, schema), offset: shape(offset ?? {}, schema) };
  return { partition: shape({}, schema), offset: shape(items, schema) };
}

function resolve(node, root, depth = 0) {
  if (!node?.$ref || depth > 8) return node ?? {};
  const found = node.$ref
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .reduce((at, key) => at?.[key.replace(/~1/g, "/").replace(/~0/g, "~")], root);
  return resolve({ ...found, ...without(node, "$ref") }, root, depth + 1);
}

const without = (node, key) => Object.fromEntries(Object.entries(node).filter(([each]) => each !== key));

/** {fields: Map(key -> field), patterns, open, first}: `patterns` are fields whose key is one of many, `first` the keys
    that a new one starts with. Alternatives (oneOf, anyOf, allOf) are laid over each other. */
function shape(raw, root) {
  const node = resolve(raw, root);
  const fields = new Map();
  const patterns = Object.entries(node.patternProperties ?? {}).map(([pattern, value]) => ({
    pattern: new RegExp(pattern, "u"),
    field: field("", value, root, false),
  }));
  if (isObject(node.additionalProperties))
    patterns.push({ pattern: /^/, field: field("", node.additionalProperties, root, false) });
  let first = node.required ?? [];
  for (const [key, value] of Object.entries(node.properties ?? {}))
    fields.set(key, field(key, value, root, (node.required ?? []).includes(key)));
  for (const other of [...(node.allOf ?? []), ...(node.oneOf ?? []), ...(node.anyOf ?? [])]) {
    const sub = resolve(other, root);
    if (sub.type === "null") continue;
    const more = shape(other, root);
    if (!first.length) first = more.first;
    patterns.push(...more.patterns);
    for (const [key, value] of more.fields)
      if (!fields.has(key))
        fields.set(key, { ...value, required: value.required && (node.allOf ?? []).includes(other) });
  }
  return { fields, patterns, first, open: node.additionalProperties !== false && !patterns.length };
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function field(key, raw, root, required) {
  const node = resolve(raw, root);
  const choices =
    node.enum ??
    (node.const !== undefined
      ? [node.const]
      : node.oneOf?.every((each) => each.const !== undefined)
        ? node.oneOf.map((each) => each.const)
        : []);
  return {
    key,
    required,
    choices: choices.filter((each) => each !== null),
    types: typesOf(node, root),
    title: node.title && node.title !== key ? node.title : "",
    meaning: node.description ?? "",
    example: node.examples?.[0] ?? null,
    pattern: node.pattern ?? "",
  };
}

function typesOf(node, root) {
  if (node.type) return [node.type].flat();
  return [
    ...new Set([...(node.anyOf ?? []), ...(node.oneOf ?? [])].flatMap((each) => typesOf(resolve(each, root), root))),
  ];
}

/** The field of a key: a named one, one of a pattern, or one that the schema does not know. */
export function define(shape, key) {
  const found = shape.fields.get(key) ?? shape.patterns.find(({ pattern }) => pattern.test(key))?.field;
  return found ? { ...found, key } : stranger(key);
}

const stranger = (key) => ({
  key,
  required: false,
  choices: [],
  types: [],
  title: "",
  meaning: "",
  example: null,
  pattern: "",
  unknown: true,
});

/** select, json or text: how a field is asked for. */
export function kind(field, value) {
  if (field.choices.length) return "select";
  if (
    typeof value === "boolean" ||
    (field.types.includes("boolean") && !field.types.some((type) => type === "string" || type === "integer"))
  )
    return "select";
  if (
    isObject(value) ||
    Array.isArray(value) ||
    (field.types.length && field.types.every((type) => type === "object" || type === "array" || type === "null"))
  )
    return "json";
  return "text";
}

export const options = (field) => (field.choices.length ? field.choices : [true, false]);

export function shown(value) {
  if (value === null || value === undefined) return value === null ? "null" : "";
  return typeof value === "object" ? stringify(value, 2) : String(value);
}

const WHOLE = /^-?(0|[1-9]\d*)$/;
const numeric = (field) => field.types.includes("integer") || field.types.includes("number");

/** {value, problem}: the value that a typed text means. A text that does not fit is kept, so that it can be mended. */
export function typed(field, text, old) {
  const fits = (type) => !field.types.length || field.types.includes(type);
  if (text === "null" && fits("null") && !(typeof old === "string" && fits("string") && field.types.length))
    return { value: null, problem: "" };
  if (kind(field, old) === "json") return json(text);
  const wasText = typeof old === "string" && fits("string");
  if (!wasText && WHOLE.test(text) && (numeric(field) || !field.types.length))
    return { value: parse(text), problem: "" };
  if (!wasText && field.types.includes("number") && text.trim() !== "" && Number.isFinite(Number(text)))
    return { value: Number(text), problem: "" };
  if (numeric(field) && !field.types.includes("string")) {
    if (WHOLE.test(text.trim())) return { value: parse(text.trim()), problem: "" };
    return {
      value: text,
      problem: text ? "A whole number is expected here." : "Give a whole number, or remove this field.",
    };
  }
  return { value: text, problem: "" };
}

function json(text) {
  try {
    return { value: parse(text), problem: "" };
  } catch (error) {
    return { value: text, problem: `Not JSON yet: ${error.message}` };
  }
}

/** What a new field starts with. */
export function initial(field) {
  if (field.choices.length) return field.choices[0];
  if (field.types.includes("boolean")) return false;
  if (field.types.includes("object")) return {};
  if (field.types.includes("array")) return [];
  return "";
}
