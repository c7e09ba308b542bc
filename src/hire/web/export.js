// The accepted facts as a file, after a look at it, or pushed to a SPARQL endpoint.

import { get, path, poster, query } from "./api.js";
import { button, count, make, save, say, textField } from "./dom.js";
import { beside, isAbort, showProblem } from "./problems.js";
import { origin } from "./session.js";

const FORMATS = {
  tsv: "TSV",
  ntriples: "N-Triples",
  turtle: "Turtle with provenance",
  quickstatements: "QuickStatements",
  sparql: "SPARQL UPDATE",
  log: "The whole log (TSV)",
};

export function exportPanel(id, signal) {
  const format = make(
    "select",
    { id: "format", onchange: () => update() },
    Object.entries(FORMATS).map(([value, name]) => make("option", { value }, name)),
  );
  const preview = make("pre", { id: "preview", tabindex: 0, role: "region", "aria-label": "Preview" });
  const words = make("p", { class: "quiet", role: "status" });
  const actions = make("div", { class: "buttons" });
  const download = button(
    "Download",
    beside(actions, async () => {
      const { file_name: name, media_type: kind } = shown;
      save(
        await get(`${path("relations", id, "export")}${query({ format: format.value })}`, { text: true, signal }),
        name,
        kind,
      );
      say("Exported");
    }),
    { class: "main", id: "download" },
  );
  actions.append(download);
  let shown = null;
  let asked = 0;

  async function update() {
    const question = ++asked;
    try {
      const found = await get(`${path("relations", id, "export", "preview")}${query({ format: format.value })}`, {
        signal,
      });
      if (question !== asked) return;
      shown = found;
      words.textContent = found.problem ?? `${count(found.facts, "fact")}; ${found.file_name} begins like this:`;
      preview.textContent = found.text;
      preview.hidden = !found.text;
      download.disabled = Boolean(found.problem);
    } catch (error) {
      if (!isAbort(error)) showProblem(actions, error);
    }
  }

  const element = make(
    "div",
    {},
    make(
      "section",
      { class: "panel form" },
      make("h2", {}, "Export"),
      make("div", { class: "field" }, make("label", { for: "format" }, "Format"), format),
      words,
      preview,
      actions,
    ),
    pushForm(id),
  );
  return { element, update };
}

function pushForm(id) {
  const actions = make("div", { class: "buttons" }, make("button", { type: "submit", id: "push" }, "Push"));
  const outcome = make("p", { role: "status", id: "pushed" });
  const send = poster({ again: true });
  const form = make(
    "form",
    { class: "panel form" },
    make("h2", {}, "Push to a store"),
    textField("endpoint", "SPARQL UPDATE endpoint", { type: "url", placeholder: "http://127.0.0.1:7878/update" }),
    textField("target-graph", "Graph (optional)", { placeholder: "IRI of a named graph" }),
    make(
      "details",
      {},
      make("summary", {}, "The store needs a password"),
      textField("user", "User", { autocomplete: "username" }),
      textField("password", "Password", { type: "password", autocomplete: "current-password" }),
    ),
    actions,
    outcome,
  );
  const valueOf = (name) => form.querySelector(`#${name}`).value.trim() || null;
  form.noValidate = true;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener(
    "submit",
    beside(actions, async () => {
      outcome.textContent = "Pushing…";
      try {
        const body = {
          endpoint: valueOf("endpoint") ?? "",
          target_graph: valueOf("target-graph"),
          user: valueOf("user"),
          password: valueOf("password"),
          by: origin().by,
        };
        const { facts, endpoint } = await send(path("relations", id, "push"), body);
        outcome.textContent = `${count(facts, "fact")} pushed to ${endpoint}.`;
      } catch (error) {
        outcome.textContent = "";
        throw error;
      }
    }),
  );
  return form;
}
