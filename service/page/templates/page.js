// Keeps the page current: follows every open run on it. When something has changed, it requests the
// page from the server again (`data-live`) and replaces the sections that are not being filled in. The page
// works without it.
"use strict";

const AT_MOST_EVERY_MS = 1000;
const OTHERWISE_EVERY_MS = 10000;
const FOCUSABLE = "a, button, summary, input, select, textarea, [tabindex]";
const followed = new Map();
let due = null;

function changed() {
  if (due === null) {
    due = setTimeout(refresh, AT_MOST_EVERY_MS);
  }
}

async function refresh() {
  due = null;
  try {
    const live = document.querySelector("main").dataset.live;
    const answer = await fetch(live, { credentials: "same-origin" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || answer.redirected || fresh.getElementById("token")) {
      location.assign("/");
      return;
    }
    replaceSections(document.querySelector("main"), fresh.querySelector("main"));
  } catch {
    return; // the coordinator is restarting or the network is down: the next refresh tries again
  }
  follow();
  tell();
}

// Sections are the children of <main>, by their ids.
function replaceSections(main, fresh) {
  for (const old of [...main.children]) {
    if (!fresh.querySelector(`:scope > #${CSS.escape(old.id)}`) && !isBusy(old)) {
      old.remove();
    }
  }
  let before = null;
  for (const next of [...fresh.children]) {
    const old = main.querySelector(`:scope > #${CSS.escape(next.id)}`);
    if (old === null) {
      const placed = document.adoptNode(next);
      before === null ? main.prepend(placed) : before.after(placed);
      before = placed;
    } else if (isBusy(old)) {
      before = old;
    } else {
      before = document.adoptNode(next);
      replaceSection(old, before);
    }
  }
}

// Somebody is filling in a form of it, or reads why one was refused.
function isBusy(section) {
  const fields = [...section.querySelectorAll("input:not([type=hidden]), select, textarea")];
  return (
    section.querySelector("#refused") !== null ||
    fields.some((each) => each === document.activeElement || isChanged(each))
  );
}

function isChanged(field) {
  if (field.options) {
    const first = [...field.options].findIndex((each) => each.defaultSelected);
    return field.selectedIndex !== Math.max(first, 0);
  }
  return field.type === "checkbox" || field.type === "radio"
    ? field.checked !== field.defaultChecked
    : field.value !== field.defaultValue;
}

function replaceSection(old, next) {
  for (const each of old.querySelectorAll("details[id]")) {
    const same = next.querySelector(`#${CSS.escape(each.id)}`);
    if (same) {
      same.open = each.open;
    }
  }
  const place = [...old.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  old.replaceWith(next);
  if (place >= 0) {
    next.querySelectorAll(FOCUSABLE)[place]?.focus({ preventScroll: true });
  }
}

function follow() {
  const shown = new Set([...document.querySelectorAll("[data-run]")].map((each) => each.dataset.run));
  for (const [run, source] of followed) {
    // An answer that is not an event stream, such as a proxy's error page, closes the source for
    // good: a new one is opened below.
    if (!shown.has(run) || source.readyState === EventSource.CLOSED) {
      source.close();
      followed.delete(run);
    }
  }
  for (const run of shown) {
    if (!followed.has(run)) {
      const source = new EventSource(`/runs/${run}/events`);
      source.addEventListener("run", changed);
      followed.set(run, source);
    }
  }
}

function readable(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) {
      return `${Math.floor(seconds / size)} ${unit}`;
    }
  }
  return `${seconds} s`;
}

function tell() {
  for (const each of document.querySelectorAll("[data-deadline]")) {
    const left = Math.round((Date.parse(each.dataset.deadline) - Date.now()) / 1000);
    const text = readable(Math.abs(left));
    each.textContent = left >= 0 ? `(in ${text})` : `(${text} ago)`;
  }
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

if (document.querySelector("main[data-live]")) {
  follow();
  tell();
  setInterval(tell, 1000);
  setInterval(() => document.hidden || changed(), OTHERWISE_EVERY_MS);
}
