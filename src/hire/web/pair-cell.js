// A cell of a table of pairs: what was typed, whether it is an entity, and what else it could mean.

import { button, label, make } from "./dom.js";
import { entityField } from "./entity-field.js";

export class PairCell {
  // `acts` has changed(), typed(), next() and paste(event).
  constructor(side, acts) {
    Object.assign(this, { side, acts, text: "", entity: null, suggestions: [], problem: null });
    this.input = make("input", {
      "aria-label": side === "head" ? "Head" : "Tail",
      placeholder: side,
      autocomplete: "off",
      spellcheck: "false",
      dir: "auto",
      oninput: () => this.#typed(),
      onkeydown: (event) => this.#onKey(event),
      onpaste: acts.paste,
    });
    this.beneath = make("div", { class: "suggestions" });
    this.element = make("div", { class: "field" }, this.input, this.beneath);
    // Hundreds of cells may be imported; only those that someone goes to need suggestions.
    this.input.addEventListener("focus", () => entityField(this.input, (match) => this.#choose(match)), { once: true });
    this.#show();
  }

  get state() {
    if (!this.name) return "empty";
    if (this.entity) return "known";
    return this.problem ? "unknown" : "checking";
  }

  get name() {
    return this.text.trim();
  }

  // What the service found for the name: an element of its answer to v1/entities/resolve.
  resolve({ given, entity, suggestions, problem }) {
    Object.assign(this, { text: given, entity, suggestions, problem: entity ? null : (problem ?? "unknown entity") });
    this.#show();
  }

  #typed() {
    Object.assign(this, { text: this.input.value, entity: null, suggestions: [], problem: null });
    this.#show();
    this.acts.typed();
  }

  #choose(match, next = true) {
    Object.assign(this, { text: match.label, entity: match, suggestions: [], problem: null });
    this.input.value = match.label;
    this.#show();
    this.acts.changed();
    if (next) this.acts.next();
  }

  #onKey(event) {
    if (event.key !== "Enter" || this.input.hasAttribute("aria-activedescendant")) return; // Enter takes a suggestion
    event.preventDefault();
    this.acts.next();
  }

  #show() {
    const { state } = this;
    if (this.input.value.trim() !== this.name) this.input.value = this.text;
    this.element.dataset.state = state;
    this.input.setAttribute("aria-invalid", String(state === "unknown"));
    const words = make("span", {}, this.suggestions.length ? "Did you mean " : (this.problem ?? ""));
    const chips = this.suggestions.map((match) =>
      button(label(match.label), () => this.#choose(match, false), { class: "chip" }),
    );
    this.beneath.replaceChildren(...(state === "unknown" ? [words, ...chips] : []));
  }
}
