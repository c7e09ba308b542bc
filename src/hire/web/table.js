// All heads with their best answers, by facets, and the slider that takes the confident ones in bulk.

import { get, path, query } from "./api.js";
import { STATES, bar } from "./card.js";
import { count, debounced, label, make, probability } from "./dom.js";
import { facetPanel } from "./facets.js";
import { setKeys } from "./keys.js";
import { listen } from "./live.js";
import { Pages } from "./pages.js";
import { isAbort, showProblem } from "./problems.js";
import { address, note } from "./router.js";
import { thresholdPanel } from "./threshold.js";

const ROWS = 100; // asked for at once
const PAUSE = 300,
  TYPING_PAUSE = 200; // milliseconds
const ORDERS = { confident: "Most confident first", head: "By head", useful: "Most useful first" };

export const showTable = (root, route, signal) => new TableView(root, route, signal).start();

class TableView {
  constructor(root, { relation, params }, signal) {
    Object.assign(this, { root, id: relation, signal, rows: new Map() });
    const { order = "confident", state = "any", type, min_confidence, max_confidence, q } = params;
    this.filters = { order, state, type, min_confidence, max_confidence, q };
    this.total = make("p", { class: "quiet", role: "status", id: "table-total" });
    this.threshold = thresholdPanel(
      relation,
      () => this.filters.type,
      signal,
      () => this.reload(),
    );
    this.facets = facetPanel(this.filters, (changes) => this.filter(changes));
    this.search = this.#searchField();
    this.pages = new Pages({
      caption: "Heads and their best answers",
      columns: ["Head", "Best tail", "Confidence", "State"],
      ask: (cursor) => this.#ask(cursor),
      rowOf: (card) => this.#row(card),
      told: (total) => this.total.replaceChildren(count(total, "head")),
    });
  }

  async start() {
    this.tools = make(
      "div",
      { class: "tools" },
      make("div", { class: "field" }, this.search),
      this.#orderSelect(),
      this.total,
    );
    const { table, button: more } = this.pages;
    const main = make("div", {}, this.threshold.element, this.tools, table, more);
    this.root.replaceChildren(make("div", { class: "table-view" }, this.facets.element, main));
    setKeys({ "/": () => this.search.focus(), j: () => this.move(1), k: () => this.move(-1) });
    this.#listen(more);
    await this.reload();
  }

  #listen(more) {
    const nearEnd = new IntersectionObserver(([entry]) => entry.isIntersecting && this.pages.more(), {
      rootMargin: "400px",
    });
    nearEnd.observe(more);
    const counts = debounced(() => this.#reloadCounts(), PAUSE);
    const all = debounced(() => this.reload(), PAUSE);
    const end = listen((name, data) => {
      if (name !== "reset" && data.relation !== this.id) return;
      if (name === "verdict") this.#renew(data.head.id);
      if (name === "reset" || name === "batch" || (name === "relation" && this.pages.onFirst)) all();
      else if (name !== "job") counts(); // whoever has scrolled down stays there
    });
    this.signal.addEventListener("abort", () =>
      [end, counts.cancel, all.cancel, () => nearEnd.disconnect()].forEach((stop) => stop()),
    );
  }

  #searchField() {
    const attributes = {
      type: "search",
      id: "table-search",
      placeholder: "Search heads",
      "aria-label": "Search heads",
    };
    const search = make("input", { ...attributes, value: this.filters.q ?? "" });
    search.addEventListener(
      "input",
      debounced(() => this.filter({ q: search.value.trim() || undefined }), TYPING_PAUSE),
    );
    return search;
  }

  #orderSelect() {
    const options = Object.entries(ORDERS).map(([value, name]) =>
      make("option", { value, selected: value === this.filters.order }, name),
    );
    return make(
      "select",
      { "aria-label": "Order", onchange: (event) => this.filter({ order: event.target.value }) },
      options,
    );
  }

  filter(changes) {
    const { order, state } = Object.assign(this.filters, changes);
    const unusual = { order: order === "confident" ? null : order, state: state === "any" ? null : state };
    note("table", this.id, { ...this.filters, ...unusual });
    this.reload();
  }

  async reload() {
    await Promise.all([this.pages.reload(), this.#reloadCounts()]);
  }

  async #reloadCounts() {
    this.threshold.update();
    try {
      this.facets.show(
        await get(`${path("relations", this.id, "facets")}${query(this.filters)}`, { signal: this.signal }),
      );
    } catch (error) {
      if (!isAbort(error)) showProblem(this.tools, error);
    }
  }

  async #ask(cursor) {
    const address = `${path("relations", this.id, "cards")}${query({ ...this.filters, limit: ROWS, cursor })}`;
    const { cards, ...page } = await get(address, { signal: this.signal });
    return { items: cards, ...page };
  }

  #row(card) {
    const row = rowOf(this.id, card);
    this.rows.set(card.head.id, row);
    return row;
  }

  // Shows a head as it is now, where it is.
  async #renew(head) {
    const old = this.rows.get(head);
    if (!old?.isConnected) return;
    const card = await get(`${path("relations", this.id, "cards", "one")}${query({ head })}`, {
      signal: this.signal,
    }).catch(() => null);
    if (card && old.isConnected) old.replaceWith(this.#row(card));
  }

  move(step) {
    const links = [...this.pages.body.querySelectorAll("a")];
    const place = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, place + step))]?.focus();
  }
}

function rowOf(id, { head, state, tail, confidence, suggestions }) {
  const accepted = suggestions.find(({ verdict }) => verdict === "accept");
  const best = accepted ?? suggestions.find((answer) => answer.tail.id === tail?.id) ?? suggestions[0] ?? null;
  const likely = accepted ? accepted.confidence : confidence;
  return make(
    "tr",
    {},
    make("td", {}, make("a", { href: address("review", id, { head: head.id }) }, label(head.label))),
    make("td", {}, best ? label(best.tail.label) : make("span", { class: "quiet" }, "none")),
    make(
      "td",
      { class: "number" },
      likely === null || likely === undefined ? "" : [bar(likely), " ", probability(likely)],
    ),
    make("td", {}, make("span", { class: `state ${state}` }, STATES[state] ?? state)),
  );
}
