// Keeps the page current: follows every open run on it. When something has changed, it requests the
// same page from the server again and replaces <main>.
"use strict";

const AT_MOST_EVERY_MS = 1000;
const OTHERWISE_EVERY_MS = 10000;
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
    const answer = await fetch(location.href, { credentials: "same-origin" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || answer.redirected || fresh.getElementById("token")) {
      location.assign("/");
      return;
    }
    const open = [...document.querySelectorAll("details[open]")].map((each) => each.id);
    document.querySelector("main").replaceWith(document.adoptNode(fresh.querySelector("main")));
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
  } catch {
    return; // the coordinator is restarting or the network is down: the next refresh tries again
  }
  follow();
  tell();
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

if (!document.getElementById("token")) {
  follow();
  tell();
  setInterval(tell, 1000);
  setInterval(() => document.hidden || changed(), OTHERWISE_EVERY_MS);
}
