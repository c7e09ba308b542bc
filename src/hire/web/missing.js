// A fact that the graph lacks, with its reasons: what a first-time visitor sees first.

import { get, poster, query } from "./api.js";
import { confidenceLine, spoken } from "./card.js";
import { button, label, make, say } from "./dom.js";
import { openEntity } from "./entity.js";
import { reasonList } from "./evidence.js";
import { beside } from "./problems.js";
import { complete } from "./relation-bar.js";
import { go } from "./router.js";
import { origin } from "./session.js";

const entity = ({ id, label: name }) => button(label(name), () => openEntity(id), { class: "entity" });

export class MissingFact {
  constructor() {
    this.element = make("div", { id: "missing" });
    this.names = []; // of the relations to try
    this.asked = 0;
  }

  // Shows a missing fact of a relation, or of any.
  async show(name = null) {
    const question = ++this.asked;
    this.element.replaceChildren(make("p", { class: "quiet" }, "Looking for a missing fact…"));
    let found;
    try {
      found = await get(`v1/examples/missing${query({ name })}`);
    } catch (error) {
      if (question !== this.asked) return;
      this.element.replaceChildren();
      throw error;
    }
    if (question !== this.asked) return; // another one was asked for in the meantime
    this.element.replaceChildren(this.#panel(found));
    this.element.scrollIntoView({ block: "nearest" });
    say(`${found.head.label} ${spoken(found.name)} ${found.answer.tail.label}`);
  }

  #panel(found) {
    const { head, name, answer, explanation, references } = found;
    const taught = references.flatMap((pair, number) => [
      number ? ", " : "",
      label(pair.head.label),
      " → ",
      label(pair.tail.label),
    ]);
    const relation = make("em", {}, label(spoken(name)));
    return make(
      "section",
      { class: "panel missing", "aria-labelledby": "missing-title" },
      make("p", { class: "quiet" }, "Not in this graph yet"),
      make("h2", { class: "statement", id: "missing-title" }, entity(head), " ", relation, " ", entity(answer.tail)),
      answer.confidence !== null && make("p", {}, confidenceLine(answer.confidence)),
      make("h3", {}, "Why"),
      reasonList(explanation, openEntity),
      make("p", { class: "quiet" }, "Taught by ", taught),
      this.#actions(found),
    );
  }

  #actions(found) {
    const actions = make("div", { class: "buttons" });
    const review = beside(actions, reviewOf(found));
    actions.append(button("Review this relation", review, { class: "main", id: "review-example" }));
    const next = this.names[(this.names.indexOf(found.name) + 1) % this.names.length];
    if (this.names.length > 1)
      actions.append(
        button(
          "Another one",
          beside(actions, () => this.show(next)),
          { id: "another" },
        ),
      );
    return actions;
  }
}

// Teaches the relation of the example, completes it, and shows the card of the missing fact.
function reviewOf({ name, references, head }) {
  const send = poster();
  const pairs = references.map((pair) => ({ head: pair.head.id, tail: pair.tail.id }));
  return async () => {
    const relation = await send("v1/relations", {
      name,
      scope: { kind: "similar" },
      references: pairs,
      by: origin().by,
    });
    if (!relation.job) await complete(relation);
    go("review", relation.id, { head: head.id });
  };
}
