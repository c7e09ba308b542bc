// Elements of the page. Text only ever enters it as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const MAX_LETTERS = 80;

export const $ = (id) => document.getElementById(id);

// An element; attributes that start with "on" are listeners, children that are null or false are left out.
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const button = (text, onclick, attributes = {}) =>
  make("button", { type: "button", onclick, ...attributes }, text);

// A label of the graph: it has a direction of its own, whatever stands beside it, and a very long one lacks its middle.
export function label(text, attributes = {}) {
  const letters = [...text];
  if (letters.length <= MAX_LETTERS) return make("bdi", { dir: "auto", ...attributes }, text);
  const shortened = `${letters.slice(0, MAX_LETTERS / 2).join("")}…${letters.slice(-MAX_LETTERS / 4).join("")}`;
  return make("bdi", { dir: "auto", title: text, ...attributes }, shortened);
}

export const key = (name) => make("kbd", { "aria-hidden": "true" }, name);

export const percent = (share) => `${Math.round(share * 100)}%`;

// A probability: one that is nearly certain is not called certain.
export function probability(share) {
  if (share > 0.995 && share < 1) return ">99%";
  return share < 0.005 && share > 0 ? "<1%" : percent(share);
}

// Short enough for a small place: of an id such as a:b:name, its last part.
export function shortened(text, most) {
  const part = text.split(/[:/#]/).pop();
  const name = text.length > most && part ? part : text;
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export const textField = (id, name, attributes = {}, hint = null) =>
  make(
    "div",
    { class: "field" },
    make("label", { for: id }, name),
    make("input", {
      id,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": hint && `${id}-hint`,
      ...attributes,
    }),
    hint && make("p", { class: "quiet", id: `${id}-hint` }, hint),
  );

// A short announcement for screen readers; what is shown says more.
export function say(text) {
  $("status").textContent = text;
}

export function debounced(work, milliseconds) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  later.now = work;
  return later;
}

// A length of time in words, as "2 min 5 s".
export function duration(seconds) {
  const whole = Math.max(1, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function save(content, name, kind = "text/plain") {
  const address = URL.createObjectURL(new Blob([content], { type: kind }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
