// What a relation is: its references, its predicate, and the heads it is completed for.

import { patch, path, poster, query, remove } from "./api.js";
import { current, onRelation, setRelation } from "./desk.js";
import { button, count, label, make, say, textField } from "./dom.js";
import { setKeys } from "./keys.js";
import { PairTable } from "./pairs.js";
import { Problem, beside } from "./problems.js";
import { complete } from "./relation-bar.js";
import { go } from "./router.js";
import { scopeField } from "./scope.js";
import { origin } from "./session.js";
import { PREDICATE_HINT } from "./teach.js";

export function showReferences(root, { relation: id }, signal) {
  setKeys({});
  const list = make("ul", { class: "references" });
  const title = make("h2", {});
  const show = (relation) => {
    if (relation?.id !== id) return;
    title.textContent = count(relation.references.length, "reference");
    list.replaceChildren(...relation.references.map((pair) => reference(id, list, pair)));
  };
  show(current());
  const end = onRelation(show);
  signal.addEventListener("abort", end);
  root.replaceChildren(
    make(
      "div",
      { class: "two" },
      make("section", { class: "panel form" }, title, list, make("h3", {}, "Add references"), adder(id)),
      make("div", {}, settings(current()), deleter(id)),
    ),
  );
}

function reference(id, list, { head, tail }) {
  const taken = beside(list, async () =>
    setRelation(await remove(`${path("relations", id, "references")}${query({ head: head.id, tail: tail.id })}`)),
  );
  return make(
    "li",
    {},
    make("span", {}, label(head.label), " → ", label(tail.label)),
    button("×", taken, { class: "plain", "aria-label": `Remove ${head.label}, ${tail.label}` }),
  );
}

function adder(id) {
  const holder = make("div", {});
  const send = poster({ again: true });
  const renew = () => {
    const table = new PairTable();
    const actions = make("div", { class: "buttons" });
    actions.append(
      button(
        "Add",
        beside(actions, async () => {
          const references = await table.pairs();
          if (!references.length)
            throw new Problem("There is no pair to add", { remedy: "enter a head and a tail first" });
          const body = { references, by: origin().by };
          setRelation(await send(path("relations", id, "references"), body));
          renew();
          say(`${count(references.length, "reference")} added`);
        }),
        { class: "main", id: "add-references" },
      ),
    );
    holder.replaceChildren(table.element, actions);
  };
  renew();
  return holder;
}

function settings(relation) {
  const scope = scopeField(
    () => relation.references.map(({ head, tail }) => ({ head: head.id, tail: tail.id })),
    relation.scope,
  );
  const actions = make("div", { class: "buttons" });
  const form = make(
    "form",
    { class: "panel form" },
    make("h2", {}, "Relation"),
    textField("name", "Name", { maxlength: 200, value: relation.name, dir: "auto" }),
    textField("predicate", "Predicate", { maxlength: 1000, value: relation.predicate ?? "" }, PREDICATE_HINT),
    scope.element,
    actions,
  );
  const save = async () => {
    const changes = {
      name: form.querySelector("#name").value.trim(),
      predicate: form.querySelector("#predicate").value.trim() || null,
      scope: scope.value(),
    };
    const changed = await patch(path("relations", relation.id), changes, {
      headers: { "if-match": `"${current().version}"` },
    });
    setRelation(changed);
    say("Saved");
    return changed;
  };
  actions.append(
    make("button", { type: "submit", id: "save-relation" }, "Save"),
    button(
      "Save and complete",
      beside(actions, async () => {
        await complete(await save());
        go("review", relation.id);
      }),
      { class: "main" },
    ),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("submit", beside(actions, save));
  return form;
}

function deleter(id) {
  const panel = make("section", { class: "panel" });
  const ask = () =>
    panel.replaceChildren(
      make("p", {}, "Delete this relation with all of its verdicts?"),
      make(
        "div",
        { class: "buttons" },
        button("Keep it", offer),
        button(
          "Delete it for good",
          beside(panel, async () => {
            await remove(path("relations", id));
            go("start");
          }),
          { class: "danger", id: "delete-sure" },
        ),
      ),
    );
  const offer = () => panel.replaceChildren(button("Delete this relation…", ask, { id: "delete" }));
  offer();
  return panel;
}
