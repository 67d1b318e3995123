// What numbers in an offset mean to a person: a log sequence number in the form that the database prints, an instant as
// local time. Only where the key leaves no doubt.

import { clock, utc } from "./format.js";

const INSTANTS = { ts_usec: 1000, ts_us: 1000, ts_ms: 1, ts_sec: 0.001, sec: 0.001, ts_ns: 1000000 };

/** A short text, or "". */
export function reading(plugin, key, value) {
  if (typeof value !== "number" && typeof value !== "bigint") return "";
  if (/^lsn(_proc|_commit)?$/.test(key) && /postgres/i.test(plugin)) return lsn(value);
  if (key in INSTANTS) return moment(Number(value) / INSTANTS[key]);
  return "";
}

export function lsn(value) {
  const whole = BigInt(value);
  if (whole < 0n) return "";
  return `${(whole >> 32n).toString(16).toUpperCase()}/${(whole & 0xffffffffn).toString(16).toUpperCase()}`;
}

function moment(ms) {
  if (!(ms > 0) || ms > 8.64e15) return "";
  return `${new Date(ms).toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" })}, ${clock(ms)}`;
}

/** The same instant in UTC, for whoever points at it. */
export function exactly(key, value) {
  if (!(key in INSTANTS) || !reading("", key, value)) return "";
  return utc(Number(value) / INSTANTS[key]);
}
