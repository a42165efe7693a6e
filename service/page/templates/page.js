// Keeps the page fresh: follows every open run it shows, and renders nothing itself. When something
// has changed it asks the server for the same page again and takes over its <main>.
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
    return; // the coordinator restarts, or the network is away: there will be another time
  }
  follow();
  tell();
}

function follow() {
  const shown = new Set([...document.querySelectorAll("[data-run]")].map((each) => each.dataset.run));
  for (const [run, source] of followed) {
    // An answer that is none, a proxy's for instance, closes it for good: then it is asked anew.
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
