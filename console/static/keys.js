// Keys: "/" searches, "?" shows the keys, "g" and a letter goes to a section, arrows go up and down
// a table's links. Single letters can be switched off (WCAG 2.1.4), as some readers speak to their
// computers.

import { keep, kept } from "./times.js";

const KEPT = "mqconsole.nokeys";
const PAIR_MS = 1_500;

let pressedG = 0;

export function listenToKeys() {
  document.addEventListener("keydown", press);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  button.textContent = "Keys";
  button.addEventListener("click", showKeys);
  document.querySelector("footer > div")?.append(button);
}

function press(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && moveInTable(event.target, step)) event.preventDefault();
  if (kept(KEPT) === "1") return;
  const isPair = Date.now() - pressedG < PAIR_MS;
  pressedG = event.key === "g" ? Date.now() : 0;
  if (isPair) goTo(event.key);
  else if (event.key === "?") showKeys();
  else if (event.key === "/") {
    event.preventDefault(); // The slash is not the first letter of what is searched.
    document.getElementById("search").select();
    document.getElementById("search").focus();
  }
}

function goTo(letter) {
  document.querySelector(`.sections [data-go="${CSS.escape(letter)}"]`)?.click();
}

/** From a link in a table to the one in the same column of the next row that has one. */
function moveInTable(element, step) {
  const cell = element.closest("tbody tr > *");
  if (!cell || !element.matches("a")) return false;
  for (let row = cell.parentElement; (row = step > 0 ? row.nextElementSibling : row.previousElementSibling); ) {
    const link = row.children[cell.cellIndex]?.querySelector("a");
    if (link) {
      link.focus();
      return true;
    }
  }
  return false;
}

// -- the list of keys -------------------------------------------------------------------------

function showKeys() {
  const dialog = document.getElementById("keys") ?? makeDialog();
  if (!dialog.open) dialog.showModal();
}

function makeDialog() {
  const dialog = document.createElement("dialog");
  dialog.id = "keys";
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = document.createElement("h2");
  title.id = "keys-title";
  title.textContent = "Keys";
  const list = document.createElement("dl");
  list.className = "facts";
  const sections = [...document.querySelectorAll(".sections [data-go]")];
  for (const [keys, what] of [
    [["/"], "search"],
    [["?"], "this list"],
    ...sections.map((link) => [["g", link.dataset.go], link.textContent]),
    [["↑", "↓"], "the link above, below in a table"],
    [["←", "→"], "the rest of a wide table"],
  ]) {
    const term = list.appendChild(document.createElement("dt"));
    for (const key of keys) {
      term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
    }
    list.appendChild(document.createElement("dd")).textContent = what;
  }
  dialog.append(title, list, makeSwitch(), makeClose(dialog));
  document.body.append(dialog);
  return dialog;
}

function makeSwitch() {
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = kept(KEPT) !== "1";
  box.addEventListener("change", () => keep(KEPT, box.checked ? "" : "1"));
  label.append(box, " Keys without Ctrl are on");
  return label;
}

function makeClose(dialog) {
  const line = document.createElement("p");
  line.className = "actions";
  const button = document.createElement("button");
  button.textContent = "Close";
  button.addEventListener("click", () => dialog.close());
  line.append(button);
  return line;
}
