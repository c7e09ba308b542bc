// A table whose rows are asked for page by page.

import { button, make } from "./dom.js";
import { isAbort, showProblem } from "./problems.js";

export class Pages {
  // `ask(cursor)` gives {items, next, total}, `rowOf(item)` a row; `told(total)` is called with each page.
  constructor({ caption, columns, ask, rowOf, told, ...attributes }) {
    Object.assign(this, { ask, rowOf, told, cursor: null, asked: 0 });
    const cells = columns.map((name) => make("th", { scope: "col" }, name));
    this.body = make("tbody");
    this.table = make(
      "table",
      attributes,
      make("caption", { class: "unseen" }, caption),
      make("thead", {}, make("tr", {}, cells)),
      this.body,
    );
    this.button = button("Show more", () => this.more(), { hidden: true });
  }

  get onFirst() {
    return this.pages <= 1;
  }

  reload() {
    return this.#load(null);
  }

  async more() {
    if (this.cursor !== null) await this.#load(this.cursor);
  }

  async #load(cursor) {
    const question = ++this.asked;
    let page;
    try {
      page = await this.ask(cursor);
    } catch (error) {
      if (!isAbort(error) && question === this.asked) showProblem(this.button, error);
      return;
    }
    if (question !== this.asked) return; // other rows were asked for in the meantime
    const rows = page.items.map(this.rowOf);
    if (cursor === null) this.body.replaceChildren(...rows);
    else this.body.append(...rows);
    this.pages = cursor === null ? 1 : this.pages + 1;
    this.cursor = page.next;
    this.button.hidden = page.next === null;
    this.told(page.total);
  }
}
