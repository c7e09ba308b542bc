// The reasons of an answer: at most three for it and one against it, as paths whose entities can be looked at.

import { button, label, make } from "./dom.js";

const MAX_FOR = 3,
  MAX_AGAINST = 1;

function mainReasons({ reasons }) {
  return [
    ...reasons.filter((reason) => reason.for).slice(0, MAX_FOR),
    ...reasons.filter((reason) => !reason.for).slice(0, MAX_AGAINST),
  ];
}

const roleOf = (reason) => (!reason.for ? "against" : reason.support ? "for" : "unsupported");

const SIGNS = { for: "+", unsupported: "+", against: "−" };
const MEANINGS = { for: "For", unsupported: "For, though no reference has it", against: "Against" };

// A list of reasons; `open(entity)` shows an entity.
export function reasonList(explanation, open) {
  const shown = mainReasons(explanation);
  if (!shown.length) return make("p", { class: "quiet" }, "Nothing in the graph speaks for it or against it.");
  return make(
    "ol",
    { class: "reasons" },
    shown.map((reason) => {
      const role = roleOf(reason);
      return make(
        "li",
        { class: role },
        make(
          "span",
          {
            class: "sign",
            role: "img",
            "aria-label": MEANINGS[role],
            title: `${MEANINGS[role]}; weight ${reason.weight.toFixed(2)}`,
          },
          SIGNS[role],
        ),
        make(
          "div",
          { class: "path" },
          steps(reason, explanation, open),
          make("span", { class: "quiet" }, ` · ${wordsOf(reason)}`),
        ),
      );
    }),
  );
}

function wordsOf(reason) {
  const more = reason.kind === "path" && reason.paths.length > 1 ? `, by ${reason.paths.length} such paths` : "";
  return `${reason.words.replace(/^speaks against[:,] (though )?/, "")}${more}`;
}

function steps(reason, { tail }, open) {
  const [entities, kinds] =
    reason.kind === "path" ? [reason.paths[0], reason.edge_types] : [[tail, reason.entity], [reason.relation]];
  return entities.flatMap((entity, place) => [
    place > 0 && make("span", { class: "step" }, " ", label(kinds[place - 1]), " → "),
    // Not a tab stop: the same entities are in the graph, which is one.
    button(label(entity.label), () => open(entity.id), { class: "entity", tabindex: -1 }),
  ]);
}

// The reasons as paths for the graph.
export function pathsOf(explanation) {
  return mainReasons(explanation).map((reason) => {
    const role = roleOf(reason);
    if (reason.kind === "path")
      return { entities: reason.paths[0].map(({ id }) => id), kinds: reason.edge_types, role };
    return { entities: [explanation.tail.id, reason.entity.id], kinds: [reason.relation], role };
  });
}

export function namesOf(explanation) {
  const names = new Map([explanation.head, explanation.tail].map(({ id, label: name }) => [id, name]));
  for (const reason of explanation.reasons) {
    for (const { id, label: name } of reason.kind === "path" ? reason.paths.flat() : [reason.entity])
      names.set(id, name);
  }
  return names;
}
