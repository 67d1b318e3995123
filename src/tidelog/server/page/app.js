// The shell: which view stands in the page, the state of the link to the service, shortcuts and colours. A view is a
// function of (root, parameters) that answers with what ends it.

import { api, onUnauthorised } from "./api.js";
import { fillWith, h, say, svg } from "./dom.js";
import { startFleet } from "./fleet.js";
import { retryNow, start, watchLink } from "./live.js";
import { askToken, button, clearToasts, toast } from "./parts.js";
import { installShortcuts, showShortcuts } from "./shortcuts.js";
import { connectorView } from "./views/connector.js";
import { connectorsView } from "./views/connectors.js";
import { createView } from "./views/create.js";
import { lostView } from "./views/lost.js";

const ROUTES = [
  [/^\/?$/, "connectors", connectorsView],
  [/^\/new$/, "new", createView],
  [/^\/connectors\/([^/]+)(?:\/(offsets|config))?$/, "connectors", connectorView],
];

const main = document.getElementById("main");
let current = { path: null, stop: () => {} };

function route() {
  const path = decodeURI(location.hash.replace(/^#/, "")) || "/";
  if (path === current.path || path === "main") return;
  current.stop();
  clearToasts();
  const [found, nav, view] = ROUTES.map(([pattern, ...rest]) => [pattern.exec(path), ...rest]).find(
    ([match]) => match,
  ) ?? [[], "", lostView];
  const first = current.path === null;
  main.replaceChildren();
  const parameters = found.slice(1).map((part) => part && decodeURIComponent(part));
  const ended = new AbortController();
  const stop = view(main, parameters, ended.signal) ?? (() => {});
  current = { path, stop: () => (ended.abort(), stop()) };
  for (const link of document.querySelectorAll("[data-nav]"))
    link.toggleAttribute("data-here", link.dataset.nav === nav);
  const title = main.querySelector("h1");
  document.title = title ? `${title.textContent} · tidelog` : "tidelog";
  scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true });
}

const LOST_MS = 1500;
const WORDS = { connecting: "Connecting…", live: "Live", lost: "Retrying…" };

function showLink() {
  const place = document.querySelector("[data-link]");
  const bar = document.querySelector("[data-lost]");
  const text = h("span");
  fillWith(
    bar,
    h(
      "div.lost-row",
      text,
      button("Try now", async () => retryNow(), { class: "small" }),
    ),
  );
  let timer = 0;
  watchLink(({ state, since }) => {
    place.dataset.link = state;
    say(place.querySelector("[data-link-text]"), WORDS[state]);
    say(text, "Connection lost, retrying. Figures are asked for every few seconds meanwhile and may be old.");
    clearTimeout(timer);
    if (state === "live") bar.hidden = true;
    else if (state === "lost")
      timer = setTimeout(() => (bar.hidden = false), Math.max(0, LOST_MS - (Date.now() - since))); // a hiccup moves nothing
  });
}

const THEMES = {
  auto: [
    "Colours: automatic",
    "M8 1.75a6.25 6.25 0 1 0 0 12.5 6.25 6.25 0 1 0 0-12.5z",
    "M8 1.75a6.25 6.25 0 0 1 0 12.5z",
  ],
  light: [
    "Colours: light",
    "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9L13 13M13 3l-1.1 1.1M4.1 11.9L3 13",
  ],
  dark: ["Colours: dark", "M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1z"],
};

function showTheme(theme) {
  const place = document.querySelector("[data-action=theme]");
  const [label, path, filled] = THEMES[theme];
  place.setAttribute("aria-label", label);
  place.title = label;
  fillWith(
    place,
    svg(
      "svg.theme-icon",
      { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
      svg("path", { d: path }),
      filled && svg("path.theme-filled", { d: filled }),
    ),
  );
}

function nextTheme() {
  showTheme(window.tidelogTheme.next());
}

onUnauthorised(askToken);
showLink();
showTheme(window.tidelogTheme.read());
document.querySelector("[data-action=theme]").addEventListener("click", nextTheme);
document.querySelector("[data-action=shortcuts]").addEventListener("click", showShortcuts);
document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault(); // the hash belongs to the views
  main.focus();
});
addEventListener(
  "unhandledrejection",
  ({ reason }) => reason?.name !== "AbortError" && toast(reason?.message ?? String(reason), "error"),
);
addEventListener("hashchange", route);
installShortcuts({ nextTheme });
startFleet();
start();
route();
api.version().then(
  (about) => document.querySelector(".brand").setAttribute("title", `tidelog ${about.version ?? ""}`),
  () => {},
);
