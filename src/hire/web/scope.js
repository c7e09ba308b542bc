// The heads that a relation is for: like those of the references, of some types, a list, or all.

import { get, post, query } from "./api.js";
import { button, count, debounced, label, make } from "./dom.js";
import { isAbort, showProblem } from "./problems.js";

const KINDS = {
  similar: "Entities like the heads of the references",
  types: "Entities of some types",
  list: "A list",
  all: "All entities",
};

// `references()` gives the references that are known by now, to count the heads that are like theirs.
export function scopeField(references, scope = { kind: "similar" }) {
  const types = new Set(scope.types ?? []);
  const size = make("p", { class: "quiet", role: "status" });
  const list = make("textarea", {
    rows: 5,
    "aria-label": "Heads, one per line",
    placeholder: "one entity per line",
    dir: "auto",
    spellcheck: "false",
    oninput: () => recount(),
  });
  list.value = (scope.heads ?? []).map((head) => head.id ?? head).join("\n");
  const typeField = make("input", {
    list: "type-names",
    "aria-label": "Type",
    placeholder: "Type…",
    autocomplete: "off",
  });
  const names = make("datalist", { id: "type-names" });
  const chips = make("div", { class: "chips" });
  const details = { types: make("div", {}, chips, make("div", { class: "field" }, typeField, names)), list };
  const radios = Object.entries(KINDS).map(([kind, words]) =>
    make(
      "div",
      { class: "choice" },
      make(
        "label",
        {},
        make("input", {
          type: "radio",
          name: "scope",
          value: kind,
          checked: kind === scope.kind,
          onchange: () => choose(kind),
        }),
        words,
      ),
      details[kind],
    ),
  );
  const element = make("fieldset", { class: "scope" }, make("legend", {}, "Heads to complete"), radios, size);
  let kind = scope.kind;

  function choose(chosen) {
    kind = chosen;
    for (const [name, detail] of Object.entries(details)) detail.hidden = name !== kind;
    recount();
  }

  function showTypes() {
    chips.replaceChildren(
      ...[...types].map((type) =>
        button(
          [label(type), " ×"],
          () => {
            types.delete(type);
            showTypes();
            recount();
          },
          { class: "chip", "aria-label": `Remove type ${type}` },
        ),
      ),
    );
  }

  const suggest = debounced(async () => {
    const found = await get(`v1/types${query({ q: typeField.value, limit: 50 })}`).catch(() => ({ types: [] }));
    names.replaceChildren(
      ...found.types.map(({ name, entities }) =>
        make("option", { value: name }, count(entities, "entity", "entities")),
      ),
    );
  }, 120);
  typeField.addEventListener("focus", suggest);
  typeField.addEventListener("input", suggest);
  typeField.addEventListener("change", () => {
    if (!typeField.value.trim()) return;
    types.add(typeField.value.trim());
    typeField.value = "";
    showTypes();
    recount();
  });

  function value() {
    if (kind === "types") return { kind, types: [...types] };
    if (kind === "list")
      return {
        kind,
        heads: list.value
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean),
      };
    return { kind };
  }

  let asked = 0;
  const recount = debounced(async () => {
    const question = ++asked;
    const chosen = value();
    const given = references();
    size.textContent = "";
    if (
      (kind === "types" && !types.size) ||
      (kind === "list" && !chosen.heads.length) ||
      (kind === "similar" && !given.length)
    )
      return;
    try {
      const { heads } = await post("v1/scope/count", { scope: chosen, references: given });
      if (question === asked) size.textContent = count(heads, "head");
    } catch (error) {
      if (!isAbort(error) && question === asked) showProblem(element, error);
    }
  }, 250);

  get(`v1/types${query({ limit: 1 })}`).then(
    ({ total }) => {
      radios[1].hidden = total === 0 && kind !== "types";
    },
    () => {},
  );
  showTypes();
  choose(kind);
  return { element, value, recount };
}
