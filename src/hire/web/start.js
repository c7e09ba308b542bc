// The first view: which graph this is, and three things to do.

import { get, query } from "./api.js";
import { spoken } from "./card.js";
import { button, count, label, make, percent } from "./dom.js";
import { setKeys } from "./keys.js";
import { MissingFact } from "./missing.js";
import { beside } from "./problems.js";
import { address } from "./router.js";

const MAX_EXAMPLES = 12;

export async function showStart(root, _route, signal) {
  setKeys({});
  const graph = await get("v1/graph", { signal });
  const missing = new MissingFact();
  const offers = make("div", { class: "offers" }, tryOffer(missing), teachOffer(), reviewOffer(graph.open_reviews));
  root.replaceChildren(
    make(
      "div",
      { class: "start" },
      make("h1", {}, label(graph.name)),
      make(
        "p",
        { class: "quiet" },
        `${sizeOf(graph)}. Say with a few pairs what a relation means; HiRe finds the facts that are missing, and says why.`,
      ),
      offers,
      missing.element,
    ),
  );
  const { examples } = await get(`v1/examples${query({ limit: MAX_EXAMPLES })}`, { signal });
  missing.names = examples.map(({ name }) => name);
  offers.firstChild.append(exampleList(missing));
}

const sizeOf = ({ entities, facts, edge_types: types }) =>
  [count(entities, "entity", "entities"), count(facts, "fact"), count(types, "edge type")].join(", ");

const offer = (title, text, ...children) =>
  make("section", { class: "panel offer" }, make("h2", {}, title), make("p", { class: "quiet" }, text), children);

function tryOffer(missing) {
  const actions = make("div", { class: "buttons" });
  actions.append(
    button(
      "Show me a missing fact",
      beside(actions, () => missing.show()),
      { class: "main", id: "try" },
    ),
  );
  return offer("Try an example", "A fact that this graph lacks, with the reasons for it.", actions);
}

function exampleList(missing) {
  const list = make("div", { class: "chips", role: "group", "aria-label": "Relations to try" });
  const chip = (name) =>
    button(
      label(spoken(name)),
      beside(list, () => missing.show(name)),
      { class: "chip example" },
    );
  list.append(...missing.names.map(chip));
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
  const list = make("ul", { class: "reviews" }, relations.map(reviewLine));
  return offer("Continue a review", "Verdicts are saved one by one; go on where you were.", list);
}

function reviewLine({ id, name, heads, counts: { open = 0 } }) {
  const reviewed = heads ? 1 - open / heads : 0;
  const left = make("small", { class: "quiet" }, heads ? `${count(open, "head")} left` : "not completed yet");
  const progress = make("progress", { value: reviewed, max: 1, "aria-label": `Reviewed: ${percent(reviewed)}` });
  return make("li", {}, make("a", { href: address("review", id) }, label(name), left), heads > 0 && progress);
}
