// The slider: how many facts are at least so likely, how many of them are right by the cards that were checked, and
// one click that accepts them all and can be taken back.

import { get, path, post, poster, query } from "./api.js";
import { button, count, debounced, make, say } from "./dom.js";
import { beside, isAbort, showProblem } from "./problems.js";
import { address } from "./router.js";
import { origin } from "./session.js";

export function thresholdPanel(id, type, signal, accepted) {
  const slider = make("input", {
    type: "range",
    id: "threshold",
    min: 0.5,
    max: 1,
    step: 0.01,
    value: 0.9,
    "aria-labelledby": "threshold-title",
    oninput: () => update(),
  });
  const words = make("p", { id: "estimate", "aria-live": "polite" });
  const actions = make("div", { class: "buttons" });
  const outcome = make("div", { id: "outcome" });
  const send = poster({ again: true });
  let asked = 0;

  async function estimate() {
    const question = ++asked;
    try {
      const found = await get(
        `${path("relations", id, "estimate")}${query({ threshold: slider.value, type: type() })}`,
        { signal },
      );
      if (question === asked) show(found); // unless the slider has moved on
    } catch (error) {
      if (!isAbort(error) && question === asked) showProblem(words, error);
    }
  }
  const update = debounced(estimate, 80);

  function show(found) {
    words.textContent = found.message;
    const check = make(
      "a",
      {
        class: `button ${found.enough ? "" : "main"}`,
        href: address("review", id, { order: "audit", min_confidence: found.threshold, type: type() }),
      },
      found.enough ? "Check more" : "Check some first",
    );
    const accept = button(
      `Accept ${count(found.facts, "fact")}`,
      beside(actions, () => acceptAll(found)),
      { class: found.enough ? "main" : "", id: "accept-all" },
    );
    accept.disabled = found.facts === 0;
    actions.replaceChildren(accept, check);
  }

  async function acceptAll({ threshold, facts }) {
    const body = { threshold, type: type() ?? null, expected: facts, ...origin() };
    const batch = await send(path("relations", id, "batches"), body);
    const undone = button(
      "Undo",
      beside(outcome, async () => {
        await post(path("batches", batch.id, "revert"), origin());
        outcome.replaceChildren(make("p", { role: "status" }, `${count(batch.entries, "fact")} open again.`));
        accepted();
      }),
      { id: "undo-batch" },
    );
    outcome.replaceChildren(make("p", { role: "status" }, `${count(batch.entries, "fact")} accepted. `), undone);
    say(`${count(batch.entries, "fact")} accepted`);
    accepted();
  }

  const element = make(
    "section",
    { class: "panel threshold", "aria-label": "Accept in bulk" },
    make("div", { class: "slider" }, make("h2", { id: "threshold-title" }, "Take the confident ones in bulk"), slider),
    words,
    actions,
    outcome,
  );
  return { element, update };
}
