// Teaching a relation: a name, a few pairs, and the heads to complete it for.

import { poster } from "./api.js";
import { make, textField } from "./dom.js";
import { setKeys } from "./keys.js";
import { PairTable } from "./pairs.js";
import { Problem, beside } from "./problems.js";
import { complete } from "./relation-bar.js";
import { go } from "./router.js";
import { scopeField } from "./scope.js";
import { origin } from "./session.js";

export const PREDICATE_HINT = "An IRI, or a Wikidata property such as P361; used in exports. Without one, the name is.";

export function showTeach(root) {
  setKeys({});
  const table = new PairTable();
  const scope = scopeField(() => table.known());
  const actions = make("div", { class: "buttons" });
  const send = poster();
  const form = make(
    "form",
    { class: "panel narrow form" },
    make("h1", {}, "Teach a relation"),
    textField("name", "Name", { maxlength: 200, placeholder: "part_of", required: true, dir: "auto" }),
    textField("predicate", "Predicate (optional)", { maxlength: 1000, placeholder: "P361" }, PREDICATE_HINT),
    make("fieldset", {}, make("legend", {}, "References: three to five pairs that are right"), table.element),
    scope.element,
    actions,
  );
  actions.append(make("button", { type: "submit", class: "main", id: "teach" }, "Teach and complete"));
  table.element.addEventListener("focusout", scope.recount);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.noValidate = true;
  form.addEventListener(
    "submit",
    beside(actions, async () => {
      const name = form.querySelector("#name").value.trim();
      if (!name) {
        form.querySelector("#name").focus();
        throw new Problem("The relation needs a name");
      }
      const references = await table.pairs();
      if (!references.length)
        throw new Problem("A relation needs at least one reference", {
          remedy: "enter a pair, paste some, or import a file",
        });
      const body = {
        name,
        predicate: form.querySelector("#predicate").value.trim() || null,
        scope: scope.value(),
        references,
        by: origin().by,
      };
      const button = actions.querySelector("button");
      button.disabled = true;
      try {
        const relation = await send("v1/relations", body);
        await complete(relation);
        go("review", relation.id);
      } finally {
        button.disabled = false;
      }
    }),
  );
  root.replaceChildren(form);
  form.querySelector("#name").focus();
}
