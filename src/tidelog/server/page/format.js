// Numbers, sizes and times as people read them. Times are local; the exact UTC instant is in the title. A value that is
// not known is a dash, never a zero.

import { h } from "./dom.js";

export const DASH = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(Number(value));
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (known(value) ? plain.format(value) : DASH);

export const compact = (value) => (known(value) ? (Math.abs(value) < 10000 ? plain : short).format(value) : DASH);

export function rate(value) {
  if (!known(value)) return DASH;
  return value > 0 && value < 10 ? Number(value).toFixed(1) : compact(value);
}

export function bytes(value) {
  if (!known(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Number(value);
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) ((size /= 1024), unit++);
  return `${size >= 100 || unit === 0 || Number.isInteger(size) ? size.toFixed(0) : size.toFixed(1)} ${units[unit]}`;
}

export function milliseconds(value) {
  if (!known(value)) return DASH;
  const ms = Number(value);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  return duration(ms / 1000);
}

export function duration(seconds) {
  if (!known(seconds)) return DASH;
  const whole = Math.max(0, Math.round(seconds));
  const [d, hours, m, s] = [
    Math.floor(whole / 86400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
    whole % 60,
  ];
  if (d) return `${d} d ${hours} h`;
  if (hours) return `${hours} h ${m} min`;
  if (m) return `${m} min${s && m < 10 ? ` ${s} s` : ""}`;
  return `${s} s`;
}

export function percent(share) {
  if (!known(share)) return DASH;
  const value = Math.min(100, share * 100);
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.floor(value)} %`;
}

/** Milliseconds of an instant in any form that services use: number of s, ms, µs or ns, or ISO text. */
export function instant(value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "string" && !/^\d+$/.test(value)) {
    const parsed = Date.parse(value);
    return Number.isNaN(parsed) ? null : parsed;
  }
  let number = Number(value);
  if (number < 1e11) return number * 1000;
  while (number > 1e14) number /= 1000;
  return number;
}

export const clock = (ms) =>
  new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const utc = (ms) => `${new Date(ms).toISOString().replace("T", " ").replace("Z", "")} UTC`;

function local(ms) {
  const date = new Date(ms);
  const day =
    date.toDateString() === new Date().toDateString()
      ? "today"
      : date.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });
  return `${day}, ${clock(ms)}`;
}

/** A <time> element: local, with UTC on hover. */
export function time(value) {
  const ms = instant(value);
  if (ms === null) return h("span", DASH);
  return h("time", { datetime: new Date(ms).toISOString(), title: utc(ms) }, local(ms));
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** "PostgreSQL" for a plugin name or a Java class name; the name itself when it is not known. */
export function pluginName(text) {
  const key = String(text ?? "")
    .split(".")
    .at(-1)
    .replace(/Connector$/, "")
    .toLowerCase();
  return PLUGINS[key] ?? String(text ?? "");
}

const PLUGINS = {
  postgres: "PostgreSQL",
  postgresql: "PostgreSQL",
  postgresconnector: "PostgreSQL",
  mysql: "MySQL",
  mariadb: "MariaDB",
  mongodb: "MongoDB",
  mongo: "MongoDB",
  oracle: "Oracle",
  sqlserver: "SQL Server",
  db2: "Db2",
  iseries: "IBM i",
  db2as400: "IBM i",
  as400: "IBM i",
  as400rpc: "IBM i",
  ibmi: "IBM i",
  vitess: "Vitess",
  cassandra: "Cassandra",
  spanner: "Spanner",
};
