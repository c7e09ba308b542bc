// Explanations of the current pair and of the next ones, asked for ahead of time.

import { get, path, query } from "./api.js";

const MOST = 5; // reasons of each kind
const MAX_KEPT = 200;

const keyOf = (head, tail) => `${head.id}\n${tail.id}`;

export class Explanations {
  constructor(relation, signal) {
    Object.assign(this, { relation, signal, found: new Map() });
  }

  has(head, tail) {
    return this.found.has(keyOf(head, tail));
  }

  async of(head, tail) {
    const key = keyOf(head, tail);
    if (!this.found.has(key)) {
      const address = `${path("relations", this.relation, "explanation")}${query({ head: head.id, tail: tail.id, most: MOST })}`;
      const asked = get(address, { signal: this.signal });
      asked.catch(() => this.found.delete(key)); // so that it is asked for again
      this.found.set(key, asked);
      if (this.found.size > MAX_KEPT) this.found.delete(this.found.keys().next().value);
    }
    return this.found.get(key);
  }

  prefetch(places) {
    for (const { card, tail } of places) if (tail) this.of(card.head, tail).catch(() => {});
  }

  // The model has learned: what it says now may differ.
  clear() {
    this.found.clear();
  }
}
