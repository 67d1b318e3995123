/* Colours: automatic (what the system wants), light or dark. A classic script in the head, so that the choice holds
   before anything is painted. */
"use strict";
(() => {
  const KEY = "tidelog.theme";
  const ORDER = ["auto", "light", "dark"];

  function read() {
    try {
      const kept = localStorage.getItem(KEY);
      return ORDER.includes(kept) ? kept : "auto";
    } catch {
      return "auto"; // storage can be forbidden; the page works without a memory
    }
  }

  function apply(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  function next() {
    const theme = ORDER[(ORDER.indexOf(read()) + 1) % ORDER.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // forbidden storage: the choice holds until the page is loaded again
    }
    apply(theme);
    return theme;
  }

  apply(read());
  window.tidelogTheme = { read, next };
})();
