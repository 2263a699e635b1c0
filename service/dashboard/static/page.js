// Copy buttons, the filter of the list, and showing which nodes of the graph belong to which step. Pages work without it.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
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
}

for (const input of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.getElementById(input.dataset.filter).tBodies[0].rows];
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

const graph = document.querySelector("svg.graph");
if (graph) {
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
      picture.classList.toggle("fit", button.dataset.zoom === "fit");
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    });
  }

  for (const link of document.querySelectorAll("[data-node]")) {
    const node = document.getElementById(`node-${link.dataset.node}`);
    if (!node) continue;
    link.addEventListener("mouseenter", () => node.classList.add("marked"));
    link.addEventListener("mouseleave", () => node.classList.remove("marked"));
  }
}
