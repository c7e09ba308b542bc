// All heads with their best answers, by facets, and the slider that takes the confident ones in bulk.

import { get, path, query } from "./api.js";
import { STATES, bar } from "./card.js";
import { button, count, debounced, label, make, probability } from "./dom.js";
import { facetPanel } from "./facets.js";
import { setKeys } from "./keys.js";
import { listen } from "./live.js";
import { isAbort, showProblem } from "./problems.js";
import { address, note } from "./router.js";
import { thresholdPanel } from "./threshold.js";

const ROWS = 100; // asked for at once
const ORDERS = { confident: "Most confident first", head: "By head", useful: "Most useful first" };

export async function showTable(root, { relation: id, params }, signal) {
  const filters = {
    order: params.order ?? "confident",
    state: params.state ?? "any",
    type: params.type,
    min_confidence: params.min_confidence,
    max_confidence: params.max_confidence,
    q: params.q,
  };
  const body = make("tbody", {});
  const total = make("p", { class: "quiet", role: "status", id: "table-total" });
  const more = button("Show more", () => load(), { class: "more", hidden: true });
  const search = make("input", {
    type: "search",
    id: "table-search",
    placeholder: "Search heads",
    "aria-label": "Search heads",
    value: filters.q ?? "",
    oninput: debounced(() => filter({ q: search.value.trim() || undefined }), 200),
  });
  const order = make(
    "select",
    { "aria-label": "Order", onchange: () => filter({ order: order.value }) },
    Object.entries(ORDERS).map(([value, name]) => make("option", { value, selected: value === filters.order }, name)),
  );
  const threshold = thresholdPanel(
    id,
    () => filters.type,
    signal,
    () => reload(),
  );
  const facets = facetPanel(filters, filter);
  const table = make(
    "table",
    {},
    make("caption", { class: "unseen" }, "Heads and their best answers"),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ["Head", "Best tail", "Confidence", "State"].map((name) => make("th", { scope: "col" }, name)),
      ),
    ),
    body,
  );
  const tools = make("div", { class: "tools" }, make("div", { class: "field" }, search), order, total);
  root.replaceChildren(
    make("div", { class: "table-view" }, facets.element, make("div", {}, threshold.element, tools, table, more)),
  );
  setKeys({ "/": () => search.focus(), j: () => move(1), k: () => move(-1) });

  let cursor = null;
  let asked = 0;

  function filter(changes) {
    Object.assign(filters, changes);
    note("table", id, {
      ...filters,
      state: filters.state === "any" ? null : filters.state,
      order: filters.order === "confident" ? null : filters.order,
    });
    reload();
  }

  async function reload() {
    cursor = null;
    threshold.update();
    await Promise.all([load(true), loadFacets()]);
  }

  async function load(anew = false) {
    const question = ++asked;
    try {
      const page = await get(`${path("relations", id, "cards")}${query({ ...filters, limit: ROWS, cursor })}`, {
        signal,
      });
      if (question !== asked) return; // other rows were asked for in the meantime
      const rows = page.cards.map((card) => rowOf(id, card));
      if (anew) body.replaceChildren(...rows);
      else body.append(...rows);
      cursor = page.next;
      more.hidden = cursor === null;
      total.textContent = count(page.total, "head");
    } catch (error) {
      if (!isAbort(error)) showProblem(tools, error);
    }
  }

  async function loadFacets() {
    try {
      facets.show(await get(`${path("relations", id, "facets")}${query(filters)}`, { signal }));
    } catch (error) {
      if (!isAbort(error)) showProblem(tools, error);
    }
  }

  function move(step) {
    const links = [...body.querySelectorAll("a")];
    const place = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, place + step))]?.focus();
  }

  const onScreen = new IntersectionObserver(
    ([entry]) => {
      if (entry.isIntersecting && cursor !== null) load();
    },
    { rootMargin: "400px" },
  );
  onScreen.observe(more);
  const changed = debounced(reload, 300);
  const end = listen((name, data) => {
    if (name === "reset" || (data.relation === id && name !== "job")) changed();
  });
  signal.addEventListener("abort", () => {
    end();
    changed.cancel();
    onScreen.disconnect();
  });
  await reload();
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
