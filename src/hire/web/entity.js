// The flyout of an entity: what it is, what the graph says about it, and where to read more.

import { get, query } from "./api.js";
import { $, button, count, label, make } from "./dom.js";
import { isAbort, problemText } from "./problems.js";

const FACTS = 12;
let pending = null;
let opener = null;

export async function openEntity(id) {
  const dialog = $("entity");
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.show();
  }
  const body = make("div", {}, make("p", { class: "quiet" }, "Loading…"));
  dialog.replaceChildren(body, button("×", closeEntity, { class: "plain close", "aria-label": "Close" }));
  try {
    const [detail, facts] = await Promise.all([
      get(`v1/entities/detail${query({ id })}`, { signal }),
      get(`v1/entities/neighbors${query({ id, limit: FACTS })}`, { signal }),
    ]);
    body.replaceChildren(...contents(detail, facts));
    $("entity-title").focus();
  } catch (error) {
    if (!isAbort(error)) body.replaceChildren(make("p", { class: "problem", role: "alert" }, problemText(error)));
  }
}

export function closeEntity() {
  pending?.abort();
  $("entity").close();
  if (opener?.isConnected) opener.focus();
}

function contents(detail, facts) {
  const list = make("ul", { class: "facts" });
  const more = button(
    "Show more",
    async () =>
      add(await get(`v1/entities/neighbors${query({ id: detail.id, limit: 4 * FACTS, cursor: facts.next })}`)),
    { class: "link" },
  );
  const add = (page) => {
    facts = page;
    list.append(...page.neighbors.map(fact));
    more.hidden = page.next === null;
  };
  add(facts);
  return [
    make("h2", { id: "entity-title", tabindex: -1, dir: "auto" }, detail.label),
    detail.id !== detail.label && make("p", { class: "quiet mono" }, detail.id),
    detail.types.length > 0 &&
      make(
        "p",
        { class: "types" },
        detail.types.map((type) => make("span", { class: "chip" }, label(type))),
      ),
    detail.description && make("p", { dir: "auto" }, detail.description),
    /^https?:/.test(detail.link ?? "") &&
      make(
        "p",
        {},
        make(
          "a",
          { href: detail.link, target: "_blank", rel: "noopener noreferrer" },
          "Open its page",
          make("span", { class: "unseen" }, " in a new tab"),
        ),
      ),
    make("h3", {}, count(facts.total, "fact")),
    list,
    more,
  ].filter(Boolean);
}

function fact({ relation, direction, entity }) {
  const other = button(label(entity.label), () => openEntity(entity.id), { class: "entity" });
  return make(
    "li",
    {},
    make("span", { class: "step" }, direction === "out" ? [label(relation), " →"] : ["← ", label(relation)]),
    " ",
    other,
  );
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && $("entity").open) closeEntity();
});
