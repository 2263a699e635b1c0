// Copy buttons, the filter of the list, the queue as it changes, parts of a page that are fetched when they are opened, and
// showing which nodes of the graph belong to which kernel. Pages work without it: what would be fetched is a link.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const lines = [...document.getElementById(button.dataset.copy).children].map((line) => line.textContent);
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(lines.join("\n"));
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy by hand";
  }
  setTimeout(() => { button.textContent = said; }, 1500);
});

for (const input of document.querySelectorAll("[data-filter]")) {
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.getElementById(input.dataset.filter).tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

// While something is in the queue, the queue and the list are shown as they are now. Not while somebody filters, or has
// the focus in one of them.
const LIVE_MS = 5000;
const showNow = async () => {
  const old = ["queue", "list"].map((id) => document.getElementById(id));
  if (!old[0]?.matches("[data-live]")) return;
  const filtered = document.querySelector("[data-filter]")?.value;
  if (!document.hidden && !filtered && !old.some((part) => part.contains(document.activeElement))) {
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = old.map((part) => page.getElementById(part.id));
      if (answer.ok && parts.every(Boolean)) old.forEach((part, i) => part.replaceWith(document.adoptNode(parts[i])));
    } catch (error) {
      console.info(`the queue could not be loaded: ${error}`);
    }
  }
  setTimeout(showNow, LIVE_MS);
};
setTimeout(showNow, LIVE_MS);

// Puts the part of the linked page in the link's place. Once: another call waits for the same answer.
const parts = new Map();
const fetched = (details) => {
  if (!parts.has(details)) parts.set(details, fetchPart(details));
  return parts.get(details);
};
const fetchPart = async (details) => {
  const place = details.querySelector("p");
  const link = place.querySelector("a");
  const said = place.querySelector("[role=status]") ?? document.createElement("span");
  said.className = "quiet";
  said.setAttribute("role", "status");
  said.textContent = " loading …";
  place.append(said);
  try {
    const answer = await fetch(link.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.getElementById("part");
    if (!answer.ok || !part) throw new Error(`status ${answer.status}`);
    place.replaceWith(...[...part.childNodes].map((node) => document.adoptNode(node)));
    showSteps();
  } catch {
    said.textContent = " could not be loaded now: close and open this again.";
    parts.delete(details);
  }
};
for (const details of document.querySelectorAll("details[data-part]")) {
  if (details.open) fetched(details);
  details.addEventListener("toggle", () => { if (details.open) fetched(details); });
}

// Nodes of the graph, once it is there, and rows of the table of kernels light each other up.
const showSteps = () => {
  const graph = document.querySelector(".picture svg.graph");
  if (!graph || graph.dataset.shown) return;
  graph.dataset.shown = "yes";
  const nodes = [...graph.querySelectorAll(".node")];
  const rows = [...document.querySelectorAll("tr[data-step]")];
  const light = (steps) => {
    const wanted = new Set(steps);
    graph.classList.toggle("dim", wanted.size > 0);
    for (const node of nodes) {
      node.classList.toggle("lit", node.dataset.steps.split(" ").some((step) => wanted.has(step)));
    }
    for (const row of rows) row.classList.toggle("lit", wanted.has(row.dataset.step));
  };
  for (const row of rows) {
    row.addEventListener("mouseenter", () => light([row.dataset.step]));
    row.addEventListener("mouseleave", () => light([]));
  }
  for (const node of nodes) {
    if (!node.dataset.steps) continue;
    node.addEventListener("mouseenter", () => light(node.dataset.steps.split(" ")));
    node.addEventListener("mouseleave", () => light([]));
  }

  const picture = graph.parentElement;
  const buttons = [...document.querySelectorAll("[data-zoom]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const zoom of ["fit", "whole"]) picture.classList.toggle(zoom, button.dataset.zoom === zoom);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    });
  }
};
showSteps();

// Words that name a node mark it in the picture, and go there.
for (const link of document.querySelectorAll("[data-node]")) {
  const find = () => document.getElementById(`node-${link.dataset.node}`);
  link.addEventListener("mouseenter", () => find()?.classList.add("marked"));
  link.addEventListener("mouseleave", () => find()?.classList.remove("marked"));
  link.addEventListener("click", async (event) => {
    const drawn = document.querySelector("details.drawn");
    if (!drawn) return;
    event.preventDefault();
    drawn.open = true;
    await fetched(drawn);
    const node = find();
    (node ?? drawn).scrollIntoView({ block: "center", inline: "center" });
    for (const other of document.querySelectorAll(".node.found")) other.classList.remove("found");
    node?.classList.add("found");
  });
}

// A link to something that is closed opens it.
const openTarget = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", openTarget);
openTarget();
