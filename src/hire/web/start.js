// The first view: which graph this is, and three things to do.

import { get, poster, query } from "./api.js";
import { confidenceLine, spoken } from "./card.js";
import { button, count, label, make, percent, say } from "./dom.js";
import { openEntity } from "./entity.js";
import { reasonList } from "./evidence.js";
import { setKeys } from "./keys.js";
import { beside } from "./problems.js";
import { complete } from "./relation-bar.js";
import { address, go } from "./router.js";
import { origin } from "./session.js";

const MAX_EXAMPLES = 12;

export async function showStart(root, _route, signal) {
  setKeys({});
  const graph = await get("v1/graph", { signal });
  const shown = make("div", { id: "missing", "aria-live": "polite" });
  const offers = make("div", { class: "offers" }, tryOffer(shown), teachOffer(), reviewOffer(graph.open_reviews));
  root.replaceChildren(
    make(
      "div",
      { class: "start" },
      make("h1", {}, label(graph.name)),
      make(
        "p",
        { class: "quiet" },
        `${count(graph.entities, "entity", "entities")}, ${count(graph.facts, "fact")}, ${count(graph.edge_types, "edge type")}. Say with a few pairs what a relation means; HiRe finds the facts that are missing, and says why.`,
      ),
      offers,
      shown,
    ),
  );
  const { examples } = await get(`v1/examples${query({ limit: MAX_EXAMPLES })}`, { signal });
  offers.firstChild.append(exampleList(examples, shown));
}

const offer = (title, text, ...children) =>
  make("section", { class: "panel offer" }, make("h2", {}, title), make("p", { class: "quiet" }, text), children);

function tryOffer(shown) {
  const actions = make("div", { class: "buttons" });
  actions.append(
    button(
      "Show me a missing fact",
      beside(actions, () => showMissing(shown, null)),
      { class: "main", id: "try" },
    ),
  );
  return offer("Try an example", "A fact that this graph lacks, with the reasons for it.", actions);
}

function exampleList(examples, shown) {
  if (!examples.length) return make("p", { class: "quiet" }, "This graph has no relations to try.");
  const list = make("div", { class: "chips", role: "group", "aria-label": "Relations to try" });
  list.append(
    ...examples.map(({ name }) =>
      button(
        label(spoken(name)),
        beside(list, () => showMissing(shown, name)),
        { class: "chip example" },
      ),
    ),
  );
  return list;
}

const teachOffer = () =>
  offer(
    "Teach a relation",
    "Three to five pairs are enough. Type, paste or import them.",
    make(
      "div",
      { class: "buttons" },
      make("a", { class: "button main", href: address("teach"), id: "offer-teach" }, "Teach a relation"),
    ),
  );

function reviewOffer(relations) {
  if (!relations.length) return offer("Continue a review", "Relations that you teach are listed here.");
  return offer(
    "Continue a review",
    "Verdicts are saved one by one; go on where you were.",
    make(
      "ul",
      { class: "reviews" },
      relations.map((relation) => {
        const { open = 0 } = relation.counts;
        const reviewed = relation.heads ? 1 - open / relation.heads : 0;
        return make(
          "li",
          {},
          make(
            "a",
            { href: address("review", relation.id) },
            label(relation.name),
            make("small", { class: "quiet" }, relation.heads ? `${count(open, "head")} left` : "not completed yet"),
          ),
          relation.heads > 0 &&
            make("progress", { value: reviewed, max: 1, "aria-label": `Reviewed: ${percent(reviewed)}` }),
        );
      }),
    ),
  );
}

async function showMissing(shown, name) {
  shown.replaceChildren(make("p", { class: "quiet" }, "Looking for a missing fact…"));
  let found;
  try {
    found = await get(`v1/examples/missing${query({ name })}`);
  } catch (error) {
    shown.replaceChildren();
    throw error;
  }
  const { answer, explanation } = found;
  const actions = make("div", { class: "buttons" });
  actions.append(
    button("Review this relation", beside(actions, reviewExample(found)), { class: "main", id: "review-example" }),
    button(
      "Another one",
      beside(actions, () => showMissing(shown, null)),
    ),
  );
  shown.replaceChildren(
    make(
      "section",
      { class: "panel missing", "aria-labelledby": "missing-title" },
      make("p", { class: "quiet" }, "Not in this graph yet"),
      make(
        "h2",
        { class: "statement", id: "missing-title", tabindex: -1 },
        entity(found.head),
        " ",
        make("em", {}, label(spoken(found.name))),
        " ",
        entity(answer.tail),
      ),
      answer.confidence !== null && make("p", {}, confidenceLine(answer.confidence)),
      make("h3", {}, "Why"),
      reasonList(explanation, openEntity),
      make(
        "p",
        { class: "quiet" },
        "Taught by ",
        found.references
          .map(({ head, tail }, number) => [number > 0 && ", ", label(head.label), " → ", label(tail.label)])
          .flat(),
      ),
      actions,
    ),
  );
  shown.scrollIntoView({ block: "nearest" });
  say(`${found.head.label} ${spoken(found.name)} ${answer.tail.label}`);
}

const entity = ({ id, label: name }) => button(label(name), () => openEntity(id), { class: "entity" });

function reviewExample({ name, references, head }) {
  const send = poster();
  return async () => {
    const body = {
      name,
      scope: { kind: "similar" },
      references: references.map((pair) => ({ head: pair.head.id, tail: pair.tail.id })),
      by: origin().by,
    };
    const relation = await send("v1/relations", body);
    if (!relation.job) await complete(relation);
    go("review", relation.id, { head: head.id });
  };
}
