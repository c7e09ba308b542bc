// A review without a card: nothing is completed yet, it is being completed, or all is reviewed.

import { get, path } from "./api.js";
import { button, count, label, make } from "./dom.js";
import { beside, isAbort, showProblem } from "./problems.js";
import { complete } from "./relation-bar.js";
import { address } from "./router.js";

export function emptyReview(relation, trail, filters, again) {
  const { job } = relation;
  if (job?.state === "running" || job?.state === "queued")
    return panel("Completing…", "The first cards appear in a moment.");
  if (!relation.heads) return offer(relation);
  if (trail.skipped() >= 0)
    return panel(
      "End of the queue",
      "Some cards were passed over.",
      button("Look at them again", again, { class: "main" }),
    );
  const table = make("a", { href: address("table", relation.id), class: "button" }, "See the table");
  const history = make("a", { href: address("history", relation.id), class: "button main" }, "Export the facts");
  if (filters.min_confidence || filters.type)
    return panel(
      "No more cards here",
      "Every card of this selection is reviewed.",
      table,
      make("a", { href: address("review", relation.id), class: "button main" }, "Review the others"),
    );
  return panel("All reviewed", `${count(relation.facts, "fact")} accepted.`, table, history);
}

const panel = (title, text, ...actions) =>
  make(
    "section",
    { class: "panel empty" },
    make("h2", {}, title),
    make("p", {}, text),
    make("div", { class: "buttons" }, actions),
  );

function offer(relation) {
  const size = make("span", {}, "its heads");
  const start = make("div", { class: "buttons" });
  start.append(
    button(
      "Complete",
      beside(start, () => complete(relation)),
      { class: "main", id: "complete" },
    ),
  );
  get(path("relations", relation.id, "scope")).then(
    ({ heads }) => size.replaceChildren(count(heads, "head")),
    (error) => {
      if (!isAbort(error)) showProblem(start, error);
    },
  );
  return make(
    "section",
    { class: "panel empty" },
    make("h2", {}, "Complete ", label(relation.name)),
    make("p", {}, "The model suggests tails for ", size, ". You review the doubtful ones and take the rest in bulk."),
    start,
  );
}
