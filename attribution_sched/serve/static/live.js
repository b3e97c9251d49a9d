"use strict";
// Renews the page's middle when the journal has grown. Without this script the page is the same, and stands still.
(function () {
  const live = document.getElementById("live");
  const button = document.getElementById("pause");
  if (!live || !button) return;
  let version = live.dataset.version;
  let paused = false;

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
  });

  function busy() {
    // Nobody's typing, reading of a selection or way through the page is taken away.
    const at = document.activeElement;
    const typing = at && live.contains(at) && ["INPUT", "SELECT"].includes(at.tagName);
    return paused || document.hidden || typing || String(document.getSelection()).length > 0;
  }

  function keep() {
    const at = document.activeElement;
    return {
      focus: at && live.contains(at) ? at.getAttribute("data-at") : null,
      opened: [...live.querySelectorAll("details[open]")].map((each) => each.dataset.at),
      scrolled: [...live.querySelectorAll(".scroll")].map((each) => [each.dataset.at, each.scrollLeft, each.scrollTop]),
    };
  }

  function restore(kept) {
    const named = (name) => (name ? live.querySelector(`[data-at="${CSS.escape(name)}"]`) : null);
    kept.opened.forEach((name) => { const each = named(name); if (each) each.open = true; });
    kept.scrolled.forEach(([name, left, top]) => {
      const each = named(name);
      if (each) { each.scrollLeft = left; each.scrollTop = top; }
    });
    const focus = named(kept.focus);
    if (focus) focus.focus({ preventScroll: true });
  }

  async function renew() {
    if (busy()) return;
    const told = await fetch("/api/version", { cache: "no-store" });
    if (!told.ok) return;
    const newest = String((await told.json()).version);
    if (newest === version) return;
    const found = await fetch(live.dataset.part, { cache: "no-store" });
    if (!found.ok || busy()) return;
    const made = new DOMParser().parseFromString(await found.text(), "text/html");
    const kept = keep();
    live.replaceChildren(...made.body.childNodes);
    version = newest;
    live.dataset.version = newest;
    live.classList.remove("renewed");
    void live.offsetWidth;
    live.classList.add("renewed");
    restore(kept);
  }

  setInterval(() => { renew().catch(() => {}); }, 2000);
})();
