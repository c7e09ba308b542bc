// Keys of the view that is shown, and the help that lists them.

import { $, button, make } from "./dom.js";

const NATIVE = "input, textarea, select, [contenteditable]"; // they need their keys themselves
const PRESSED = "button, a, summary, [role=button], [role=option]"; // space and Enter press them

let current = {};

// The keys of a view: {key: listener}.
export function setKeys(keys) {
  current = keys;
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog:modal"))
      return;
    const typing =
      event.target.matches?.(NATIVE) &&
      event.target.type !== "radio" &&
      event.target.type !== "checkbox" &&
      event.target.type !== "range";
    if (typing || (event.key === " " && event.target.matches?.(`${PRESSED}, ${NATIVE}`))) return;
    const listener = event.key === "?" ? showHelp : Object.hasOwn(current, event.key) ? current[event.key] : null;
    if (listener === null) return;
    event.preventDefault();
    listener(event);
  });
  $("help-open").addEventListener("click", showHelp);
}

const HELP = [
  ["a", "accept the pair"],
  ["x", "reject the pair"],
  ["space", "unsure"],
  ["n", "no tail exists for this head"],
  ["z", "undo the last verdict, again and again"],
  ["1 – 9", "look at another tail"],
  ["j", "next card"],
  ["k", "previous card"],
  ["/", "search a head"],
  ["e", "details of the tail"],
  ["?", "this help"],
];

function showHelp() {
  const dialog = $("help");
  if (dialog.open) return;
  const rows = HELP.map(([name, does]) =>
    make(
      "div",
      {},
      make("dt", {}, ...name.split(" ").map((one) => (one === "–" ? " – " : make("kbd", {}, one)))),
      make("dd", {}, does),
    ),
  );
  dialog.replaceChildren(
    make("h2", { id: "help-title" }, "Keys"),
    make("dl", { class: "keys" }, rows),
    make(
      "p",
      { class: "quiet" },
      "A verdict is about the pair that is shown. It is saved once the top of the page says so; the model learns from it in the background.",
    ),
    make("p", {}, make("a", { href: "docs" }, "The HTTP API")),
    button("Close", () => dialog.close(), { class: "main" }),
  );
  dialog.showModal();
}
