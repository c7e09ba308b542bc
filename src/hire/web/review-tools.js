// What is above the card: the order of the queue, what it is filtered by, and a search for any head.

import { button, make } from "./dom.js";
import { entityField } from "./entity-field.js";
import { go } from "./router.js";

const ORDERS = {
  useful: "Most useful first",
  confident: "Most confident first",
  head: "By head",
  audit: "Random audit",
};

export function filtersOf({ order, min_confidence, type }) {
  return { order: Object.hasOwn(ORDERS, order ?? "") ? order : "useful", min_confidence, type };
}

// `visit(head)` shows the card of a head.
export function reviewTools(relation, filters, visit) {
  const search = make("input", {
    id: "search",
    type: "search",
    placeholder: "Search a head",
    "aria-label": "Search a head",
  });
  const field = make("div", { class: "field" }, search);
  const element = make("div", { class: "tools" }, orderSelect(relation, filters), filterChip(relation, filters), field);
  entityField(search, ({ id }) => {
    search.value = "";
    visit(id);
  });
  return { element, search };
}

function orderSelect(relation, filters) {
  const options = Object.entries(ORDERS).map(([value, name]) =>
    make("option", { value, selected: value === filters.order }, name),
  );
  const onchange = (event) => go("review", relation, { ...filters, order: event.target.value });
  return make("select", { id: "order", "aria-label": "Order", onchange }, options);
}

function filterChip(relation, { order, min_confidence: least, type }) {
  if (!least && !type) return null;
  const words = [least && `confidence ${least} or higher`, type].filter(Boolean).join(", ");
  const removed = () => go("review", relation, { order });
  return button(`${words} ×`, removed, { class: "chip", "aria-label": `Remove the filter: ${words}` });
}
