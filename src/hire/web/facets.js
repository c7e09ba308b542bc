// Facets of the table: states, types and confidence, each with its counts; a click filters, another click removes the filter.

import { STATES, bar } from "./card.js";
import { button, label, make } from "./dom.js";

const NO_RANGE = { min_confidence: undefined, max_confidence: undefined };

export function facetPanel(filters, filter) {
  const element = make("aside", { class: "facets panel", "aria-label": "Facets" });

  function show({ states, types, confidence }) {
    const bins = [...confidence].reverse();
    element.replaceChildren(
      group(
        "State",
        states.map(({ value, count }) =>
          facet(STATES[value] ?? value, count, filters.state === value, (on) => filter({ state: on ? value : "any" })),
        ),
      ),
      group(
        "Confidence",
        bins.map(({ low, high, count }) => {
          const range = { min_confidence: low, max_confidence: high < 1 ? high : undefined }; // the last one has its upper end, too
          const chosen =
            Number(filters.min_confidence) === low &&
            (filters.max_confidence === undefined ? high >= 1 : Number(filters.max_confidence) === high);
          return facet(
            `${low.toFixed(1)} – ${high.toFixed(1)}`,
            count,
            chosen,
            (on) => filter(on ? range : NO_RANGE),
            Math.max(1, ...bins.map((bin) => bin.count)),
          );
        }),
      ),
      types.some(({ value }) => value)
        ? group(
            "Type",
            types.map(({ value, count }) =>
              facet(value || "no type", count, filters.type === value, (on) =>
                filter({ type: on ? value : undefined }),
              ),
            ),
          )
        : "",
    );
  }
  return { element, show };
}

const group = (name, rows) =>
  make(
    "details",
    { open: true },
    make("summary", {}, name),
    make(
      "ul",
      {},
      rows.map((row) => make("li", {}, row)),
    ),
  );

function facet(name, count, chosen, choose, most = null) {
  const shown = button(
    [label(name), make("span", { class: "quiet" }, count.toLocaleString("en"))],
    () => choose(!chosen),
    { class: "facet", "aria-pressed": String(chosen) },
  );
  if (most) shown.append(bar(count / most));
  return shown;
}
