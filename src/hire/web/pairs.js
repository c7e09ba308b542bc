// A table for pairs: typed, pasted or read from a file. Each cell is looked up as you type.

import { post } from "./api.js";
import { button, count, debounced, make, say } from "./dom.js";
import { PairCell } from "./pair-cell.js";
import { Problem, beside } from "./problems.js";

const TYPING_PAUSE = 180; // milliseconds
const MAX_BYTES = 900_000; // of a file
const MAX_RESOLVED = 1000; // names of one request

export class PairTable {
  constructor() {
    this.rows = [];
    this.body = make("ol", { class: "pair-rows" });
    this.summary = make("p", { class: "quiet", role: "status" });
    this.file = make("input", { type: "file", id: "import", hidden: true, accept: ".tsv,.csv,.txt,text/plain" });
    this.tools = make(
      "div",
      { class: "tools" },
      button("Import a file", () => this.file.click()),
      this.summary,
    );
    const heading = make(
      "div",
      { class: "pair-heading quiet", "aria-hidden": "true" },
      ...["Head", "Tail"].map((name) => make("span", {}, name)),
    );
    this.element = make("div", { class: "pair-table" }, heading, this.body, this.tools, this.file);
    this.file.addEventListener(
      "change",
      beside(this.tools, () => this.#import()),
    );
    this.lookUpSoon = debounced(
      beside(this.tools, () => this.#lookUp()),
      TYPING_PAUSE,
    );
    this.#keepOneEmpty();
    this.#report();
  }

  // The pairs by the ids of their entities; an error at the first one that is not known.
  async pairs() {
    this.lookUpSoon.cancel();
    await this.#lookUp(); // what was typed just now
    const bad = this.#filled()
      .flatMap(({ cells }) => cells)
      .find(({ entity }) => !entity);
    if (bad) {
      bad.input.focus();
      const message = bad.name ? `“${bad.name}” is not an entity of this graph` : `A pair lacks its ${bad.side}`;
      throw new Problem(message, { remedy: "correct or remove the pair" });
    }
    return this.known();
  }

  // The pairs that are known by now.
  known() {
    const whole = this.rows.filter(({ cells }) => cells.every(({ entity }) => entity));
    return whole.map(({ cells: [head, tail] }) => ({ head: head.entity.id, tail: tail.entity.id }));
  }

  #filled() {
    return this.rows.filter(({ cells }) => cells.some(({ name }) => name));
  }

  #add() {
    const row = { element: make("li", { class: "pair-row" }) };
    row.cells = ["head", "tail"].map((side) => new PairCell(side, this.#actsOf(row, side)));
    const removed = () => {
      this.#drop(row);
      this.#keepOneEmpty();
      this.#report();
    };
    const remove = button("×", removed, { class: "plain", "aria-label": "Remove the pair", tabindex: -1 });
    row.element.append(...row.cells.map(({ element }) => element), remove);
    this.rows.push(row);
    this.body.append(row.element);
    return row;
  }

  #actsOf(row, side) {
    return {
      changed: () => this.#report(),
      typed: () => {
        this.#keepOneEmpty();
        this.#report();
        this.lookUpSoon();
      },
      next: () => (side === "head" ? row.cells[1] : this.rows[this.rows.indexOf(row) + 1]?.cells[0])?.input.focus(),
      paste: beside(this.tools, (event) => this.#paste(event)),
    };
  }

  #drop(row) {
    this.rows.splice(this.rows.indexOf(row), 1);
    row.element.remove();
  }

  #keepOneEmpty() {
    if (!this.rows.length || this.rows.at(-1).cells.some(({ name }) => name)) this.#add();
  }

  async #import() {
    const [chosen] = this.file.files;
    if (!chosen) return;
    if (chosen.size > MAX_BYTES) {
      throw new Problem(`${chosen.name} is larger than ${MAX_BYTES / 1000} KB`, {
        remedy: "a few references are enough",
      });
    }
    const text = await chosen.text();
    this.file.value = "";
    await this.#read(text, chosen.name);
  }

  async #paste(event) {
    const text = event.clipboardData.getData("text");
    if (!/[\n\t]/.test(text.trim())) return; // one name
    event.preventDefault();
    await this.#read(text);
  }

  // Text of several lines or columns, read as the command line reads it.
  async #read(text, name = null) {
    const { rows } = await post("v1/pairs/read", { text, format: null, name });
    for (const row of this.rows.filter(({ cells }) => cells.every((cell) => !cell.name))) this.#drop(row);
    for (const found of rows) this.#add().cells.forEach((cell) => cell.resolve(found[cell.side]));
    this.#keepOneEmpty();
    this.#report();
    say(`${count(rows.length, "pair")} read`);
  }

  async #lookUp() {
    const open = this.rows.flatMap(({ cells }) => cells).filter(({ state }) => state === "checking");
    const names = [...new Set(open.map(({ name }) => name))].slice(0, MAX_RESOLVED);
    if (!names.length) return;
    const found = new Map((await post("v1/entities/resolve", { names })).names.map((one) => [one.given, one]));
    for (const cell of open) {
      const answer = found.get(cell.name); // none if the cell has changed in the meantime
      if (answer && cell.state === "checking") cell.resolve(answer);
    }
    this.#report();
  }

  #report() {
    const filled = this.#filled();
    const unknown = filled.filter(({ cells }) => cells.some(({ entity }) => !entity)).length;
    const words = `${count(filled.length, "pair")}${unknown ? `, ${unknown} not known yet` : ""}`;
    this.summary.textContent = filled.length ? words : "Paste lines from a table, or import TSV or CSV.";
  }
}
