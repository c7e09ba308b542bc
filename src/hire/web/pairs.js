// A table for pairs: typed, pasted or read from a file. Each cell is looked up as you type, and unknown ones say so,
// with suggestions beside them.

import { post } from "./api.js";
import { button, count, debounced, label, make, say } from "./dom.js";
import { entityField } from "./entity-field.js";
import { Problem, beside } from "./problems.js";

const TYPING_PAUSE = 180; // milliseconds
const MAX_BYTES = 900_000;
const MAX_RESOLVED = 1000; // names of one request
const SIDES = ["head", "tail"];

export function pairTable() {
  const rows = [];
  const body = make("ol", { class: "pair-rows" });
  const summary = make("p", { class: "quiet", role: "status" });
  const file = make("input", { type: "file", id: "import", hidden: true, accept: ".tsv,.csv,.txt,text/plain", "aria-label": "File of pairs" });
  const tools = make("div", { class: "tools" }, button("Import a file", () => file.click(), { id: "import-button" }), summary);
  const element = make("div", { class: "pair-table" }, make("div", { class: "pair-heading quiet", "aria-hidden": "true" }, make("span", {}, "Head"), make("span", {}, "Tail")), body, tools, file);
  file.addEventListener("change", beside(tools, async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > MAX_BYTES) throw new Problem(`${chosen.name} is larger than ${MAX_BYTES / 1000} KB`, { remedy: "a handful of references is enough" });
    const text = await chosen.text();
    file.value = "";
    await read(text, chosen.name);
  }));

  // Text of several lines or columns, read as the command line reads it.
  async function read(text, name = null) {
    const { rows: found } = await post("v1/pairs/read", { text, format: null, name });
    for (const row of rows.filter(isEmpty)) drop(row);
    for (const { head, tail } of found) add(cellOf(head), cellOf(tail));
    add();
    report();
    say(`${count(found.length, "pair")} read`);
  }

  const cellOf = ({ given, entity, suggestions, problem }) => ({ text: given, entity, suggestions, problem });
  const isEmpty = (row) => SIDES.every((side) => !row[side].text.trim());

  function add(head = cellOf({ given: "", entity: null, suggestions: [], problem: null }), tail = { ...head }) {
    const row = { head, tail, element: make("li", { class: "pair-row" }) };
    row.element.append(...SIDES.map((side) => fieldOf(row, side)), button("×", () => { drop(row); keepOneEmpty(); report(); }, { class: "plain", "aria-label": "Remove the pair", tabindex: -1 }));
    rows.push(row);
    body.append(row.element);
    return row;
  }

  function drop(row) {
    rows.splice(rows.indexOf(row), 1);
    row.element.remove();
  }

  function keepOneEmpty() {
    if (!rows.length || !isEmpty(rows.at(-1))) add();
  }

  function fieldOf(row, side) {
    const cell = row[side];
    const input = make("input", { value: cell.text, "aria-label": side === "head" ? "Head" : "Tail", placeholder: side, autocomplete: "off", spellcheck: "false", dir: "auto" });
    const beneath = make("div", { class: "suggestions" });
    const field = make("div", { class: "field" }, input, beneath);
    const set = (changes) => { Object.assign(cell, changes); show(); report(); };
    function show() {
      if (input.value !== cell.text && document.activeElement !== input) input.value = cell.text;
      field.dataset.state = !cell.text.trim() ? "empty" : cell.entity ? "known" : cell.problem ? "unknown" : "checking";
      input.setAttribute("aria-invalid", String(field.dataset.state === "unknown"));
      const offered = field.dataset.state === "unknown" ? cell.suggestions : [];
      beneath.replaceChildren(...(field.dataset.state === "unknown" ? [make("span", {}, offered.length ? "Did you mean " : cell.problem)] : []),
        ...offered.map((match) => button(label(match.label), () => { input.value = match.label; set({ text: match.label, entity: match, problem: null }); }, { class: "chip" })));
    }
    cell.show = show;
    input.addEventListener("focus", () => {
      entityField(input, (match) => { set({ text: match.label, entity: match, problem: null }); following(row, side)?.focus(); });
    }, { once: true });
    input.addEventListener("input", () => { set({ text: input.value, entity: null, problem: null, suggestions: [] }); keepOneEmpty(); resolve(); });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || input.hasAttribute("aria-activedescendant")) return; // Enter takes the suggestion
      event.preventDefault();
      following(row, side)?.focus();
    });
    input.addEventListener("paste", beside(tools, async (event) => {
      const text = event.clipboardData.getData("text");
      if (!/[\n\t]/.test(text.trim())) return;
      event.preventDefault();
      await read(text);
    }));
    show();
    return field;
  }

  function following(row, side) {
    const inputs = [...body.querySelectorAll("input")];
    const place = 2 * rows.indexOf(row) + SIDES.indexOf(side);
    return inputs[place + 1];
  }

  const resolve = debounced(beside(tools, lookUp), TYPING_PAUSE);

  async function lookUp() {
    const open = rows.flatMap((row) => SIDES.map((side) => row[side])).filter(({ text, entity, problem }) => text.trim() && !entity && !problem);
    const names = [...new Set(open.map(({ text }) => text.trim()))].slice(0, MAX_RESOLVED);
    if (!names.length) return;
    const found = new Map((await post("v1/entities/resolve", { names })).names.map((one) => [one.given, one]));
    for (const cell of open) {
      const answer = found.get(cell.text.trim()); // none if the cell was changed in the meantime
      if (!answer || cell.entity) continue;
      const { entity, suggestions, problem } = answer;
      Object.assign(cell, { entity, suggestions, problem: entity ? null : problem ?? "unknown entity" });
      cell.show();
    }
    report();
  }

  function report() {
    const filled = rows.filter((row) => !isEmpty(row));
    const unknown = filled.filter((row) => SIDES.some((side) => !row[side].entity)).length;
    summary.textContent = filled.length ? `${count(filled.length, "pair")}${unknown ? `, ${unknown} not known yet` : ""}` : "Paste lines from a table, or import TSV or CSV.";
  }

  // The pairs by the ids of their entities; an error at the first one that is not known.
  async function pairs() {
    resolve.cancel();
    await lookUp(); // what was typed just now
    const filled = rows.filter((row) => !isEmpty(row));
    const bad = filled.flatMap((row) => SIDES.map((side) => [row, side])).find(([row, side]) => !row[side].entity);
    if (bad) {
      const [row, side] = bad;
      row.element.querySelectorAll("input")[SIDES.indexOf(side)].focus();
      throw new Problem(row[side].text.trim() ? `“${row[side].text.trim()}” is not an entity of this graph` : `A pair lacks its ${side}`, { remedy: "correct or remove the pair" });
    }
    return filled.map(({ head, tail }) => ({ head: head.entity.id, tail: tail.entity.id }));
  }

  function known() {
    return rows.filter((row) => SIDES.every((side) => row[side].entity)).map(({ head, tail }) => ({ head: head.entity.id, tail: tail.entity.id }));
  }

  add();
  report();
  return { element, pairs, known };
}
