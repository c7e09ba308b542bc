// One card: a pair, how likely it is, why, and what else could be the tail.

import { button, key, label, make, percent, probability } from "./dom.js";
import { reasonList } from "./evidence.js";

const MAX_OTHERS = 9;
const MAX_KNOWN = 6;
export const VERDICTS = {
  accept: "accepted",
  reject: "rejected",
  unsure: "unsure",
  no_tail: "no tail",
  undo: "undone",
};
export const STATES = {
  open: "to review",
  accepted: "accepted",
  rejected: "rejected",
  unsure: "unsure",
  no_tail: "no tail",
  empty: "no suggestion",
};

export const spoken = (name) => name.replaceAll("_", " ");

// `acts` has judge(verdict), choose(tail), open(entity) and find(field).
export function cardView(relation, place, acts) {
  const { card, tail } = place;
  const answer = answerOf(place);
  const why = make("div", { class: "why" });
  const likely = make("span", {}, answer && confidence(answer));
  const element = make(
    "section",
    { class: "card panel", id: "card", tabindex: -1, "aria-labelledby": "statement" },
    make(
      "h2",
      { id: "statement", class: "statement" },
      entityButton(card.head, acts.open),
      " ",
      make("em", {}, label(spoken(relation.name))),
      " ",
      tail ? entityButton(tail, acts.open, { id: "tail" }) : make("span", { class: "quiet" }, "no suggestion"),
    ),
    make(
      "div",
      { class: "facts-line" },
      likely,
      stateOf(place),
      card.type && make("span", { class: "chip" }, label(card.type)),
    ),
    card.known.length > 0 && known(card.known, acts.open),
    why,
    others(place, acts),
  );
  const explain = (explanation) => {
    why.replaceChildren(...whyOf(explanation, acts.open));
    likely.replaceChildren(confidence(answer ?? explanation));
  };
  return { element, explain };
}

const answerOf = ({ card, tail }) => card.suggestions.find((answer) => answer.tail.id === tail?.id) ?? null;

const entityButton = ({ id, label: name }, open, attributes = {}) =>
  button(label(name), () => open(id), { class: "entity", ...attributes, title: name });

function confidence(answer) {
  if (answer.confidence === null)
    return make("span", { class: "quiet" }, `score ${answer.score.toFixed(2)}, not calibrated`);
  return confidenceLine(answer.confidence);
}

// A bar beside the number that says the same.
export function bar(share) {
  const filled = make("span", {});
  filled.style.inlineSize = percent(share);
  return make("span", { class: "bar", "aria-hidden": "true" }, filled);
}

export const confidenceLine = (share) =>
  make(
    "span",
    { class: "confidence" },
    bar(share),
    make("strong", {}, probability(share)),
    make("span", { class: "quiet" }, "confidence"),
  );

function stateOf({ card, tail, item }) {
  const given =
    item?.verdict ??
    card.suggestions.find((answer) => answer.tail.id === tail?.id)?.verdict ??
    (card.state === "no_tail" ? "no_tail" : null);
  return given && make("span", { class: `state ${given}` }, VERDICTS[given]);
}

function known(tails, open) {
  const shown = tails.slice(0, MAX_KNOWN);
  return make(
    "p",
    { class: "known quiet" },
    "Known: ",
    shown.map((tail) => button(label(tail.label), () => open(tail.id), { class: "entity", tabindex: -1 })),
    tails.length > shown.length && ` and ${tails.length - shown.length} more`,
  );
}

function whyOf(explanation, open) {
  const { similar } = explanation;
  return [
    make("h3", {}, "Why"),
    reasonList(explanation, open),
    similar &&
      make(
        "p",
        { class: "quiet" },
        "Most similar reference: ",
        label(similar.head.label),
        " → ",
        label(similar.tail.label),
      ),
  ].filter(Boolean);
}

// Native radio buttons: one tab stop, and arrows go from tail to tail.
function others({ card, tail }, acts) {
  const choices = card.suggestions
    .filter((answer) => !answer.known)
    .slice(0, MAX_OTHERS)
    .map((answer, number) =>
      make(
        "label",
        { class: `other ${answer.verdict ?? ""}` },
        make("input", {
          type: "radio",
          name: "tail",
          value: answer.tail.id,
          checked: answer.tail.id === tail?.id,
          onchange: () => acts.choose(answer.tail),
        }),
        key(number + 1),
        label(answer.tail.label, { title: answer.tail.label }),
        make(
          "span",
          { class: "quiet" },
          answer.confidence === null ? answer.score.toFixed(2) : probability(answer.confidence),
        ),
      ),
    );
  const field = make("input", { id: "other-tail", placeholder: "Another tail…", "aria-label": "Another tail" });
  acts.find(field);
  return make(
    "fieldset",
    { class: "others" },
    make("legend", {}, "Tails"),
    choices,
    make("div", { class: "field" }, field),
  );
}

export function tailByNumber({ card }, number) {
  return card.suggestions.filter((answer) => !answer.known)[number - 1]?.tail ?? null;
}

// The buttons of a verdict, in reach of a thumb.
export function verdictBar(judge, undo) {
  const made = (verdict, name, shortcut) =>
    button([make("span", {}, name), key(shortcut)], () => judge(verdict), {
      class: `verdict ${verdict}${verdict === "no_tail" ? "" : " of-tail"}`,
      id: `verdict-${verdict}`,
    });
  return make(
    "div",
    { class: "verdicts", role: "group", "aria-label": "Verdict" },
    button([make("span", {}, "Undo"), key("z")], undo, { class: "verdict undo", id: "undo" }),
    made("no_tail", "No tail", "n"),
    made("reject", "Reject", "x"),
    made("unsure", "Unsure", "␣"),
    made("accept", "Accept", "a"),
  );
}
