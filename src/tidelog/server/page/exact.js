// JSON without losing digits. Positions in a log are 64-bit numbers; JavaScript's own numbers are exact up to 2^53
// only. Integers beyond that become BigInt here, and are written back as they were.

/** Parses; throws SyntaxError with `line` and `column`. */
export function parse(text) {
  const reader = new Reader(text);
  const value = reader.value();
  reader.space();
  if (reader.at < text.length) reader.fail("Something follows the end of the document");
  return value;
}

export function stringify(value, indent = 0) {
  return write(value, indent ? " ".repeat(indent) : "", "");
}

export const same = (a, b) => stringify(sorted(a)) === stringify(sorted(b));

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sorted(value[key])]),
  );
}

function write(value, step, pad) {
  if (typeof value === "bigint") return value.toString();
  if (value === undefined) return "null";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = pad + step;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((item) => write(item, step, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${step && " "}${write(item, step, inner)}`);
  if (!parts.length) return open + close;
  return step ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${pad}${close}` : open + parts.join(",") + close;
}

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const WORDS = { true: true, false: false, null: null };

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  fail(what) {
    const before = this.text.slice(0, this.at).split("\n");
    const error = new SyntaxError(`${what} (line ${before.length}, column ${before.at(-1).length + 1}).`);
    error.line = before.length;
    throw error;
  }

  space() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at++;
  }

  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at += found[0].length;
    return found;
  }

  value() {
    this.space();
    const first = this.text[this.at];
    if (first === undefined) this.fail("The document ends too early");
    if (first === "{") return this.object();
    if (first === "[") return this.list();
    if (first === '"') return this.string();
    return this.number() ?? this.word();
  }

  string() {
    const found = this.take(STRING) ?? this.fail("This text has no end, or a character that must be escaped");
    return JSON.parse(found[0]);
  }

  number() {
    const found = this.take(NUMBER);
    if (!found) return undefined;
    const number = Number(found[0]);
    const whole = found[1] === undefined && found[2] === undefined;
    return whole && !Number.isSafeInteger(number) ? BigInt(found[0]) : number;
  }

  word() {
    const found = this.take(WORD) ?? this.fail("A value is expected here");
    return WORDS[found[0]];
  }

  list() {
    const items = [];
    this.each("]", () => items.push(this.value()));
    return items;
  }

  object() {
    const made = {};
    this.each("}", () => {
      this.space();
      if (this.text[this.at] !== '"') this.fail("A key in double quotes is expected here");
      const key = this.string();
      this.space();
      if (this.text[this.at++] !== ":") (this.at--, this.fail("A colon is expected here"));
      Object.defineProperty(made, key, { value: this.value(), enumerable: true, configurable: true, writable: true });
    });
    return made;
  }

  each(close, item) {
    this.at++;
    this.space();
    if (this.text[this.at] === close) return void this.at++;
    for (;;) {
      item();
      this.space();
      const next = this.text[this.at];
      if (next !== "," && next !== close) this.fail(`A comma or ${close} is expected here`);
      this.at++;
      if (next === close) return;
    }
  }
}
