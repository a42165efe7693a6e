// Writes the whole link into the commands: its secret is after the #, which only the browser knows.
"use strict";

for (const each of document.querySelectorAll("[data-link]")) {
  // A link of ours has no quote; whoever adds one must not get out of those around it.
  const link = location.href.replaceAll("'", "%27");
  each.textContent = each.textContent.replace("PASTE-THE-LINK", () => link);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
