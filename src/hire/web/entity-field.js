// A field that suggests entities while you type: the combobox pattern of ARIA.

import { get, query } from "./api.js";
import { debounced, label, make } from "./dom.js";
import { isAbort } from "./problems.js";

const MATCHES = 8;
const TYPING_PAUSE = 120; // milliseconds
let fields = 0;

export function entityField(input, chosen) {
  const id = `matches-${++fields}`;
  const list = make("ul", { class: "listbox", role: "listbox", id, "aria-label": "Entities", hidden: true });
  const attributes = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
    autocomplete: "off",
    spellcheck: "false",
    dir: "auto",
  };
  for (const [name, value] of Object.entries(attributes)) input.setAttribute(name, value);
  input.after(list);
  let matches = [];
  let active = -1;
  let pending = null;

  const close = () => {
    search.cancel();
    pending?.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const activate = (number) => {
    active = number;
    [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === active)));
    input.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  };
  const choose = (number) => {
    const match = matches[number];
    close();
    input.value = match.label;
    chosen(match);
  };
  const search = debounced(async () => {
    pending?.abort();
    pending = new AbortController();
    const q = input.value.trim();
    if (!q) {
      close();
      return;
    }
    try {
      matches = (await get(`v1/entities${query({ q, k: MATCHES })}`, { signal: pending.signal })).matches;
    } catch (error) {
      if (!isAbort(error)) close(); // suggestions only help; what is submitted is checked in any case
      return;
    }
    if (document.activeElement !== input) return;
    active = -1;
    list.replaceChildren(...matches.map((match, number) => option(match, `${id}-${number}`, () => choose(number))));
    list.hidden = !matches.length;
    input.setAttribute("aria-expanded", String(matches.length > 0));
  }, TYPING_PAUSE);

  input.addEventListener("input", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (step) {
      event.preventDefault();
      activate((active + step + matches.length) % matches.length);
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      choose(active);
    }
  });
  return { close };
}

function option(match, id, onchosen) {
  const onpointerdown = (event) => {
    event.preventDefault();
    onchosen();
  };
  return make(
    "li",
    { role: "option", id, "aria-selected": "false", onpointerdown },
    label(match.label),
    match.label !== match.id && make("small", {}, match.id),
  );
}
