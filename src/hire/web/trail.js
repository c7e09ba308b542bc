// The cards of a review in the order they are shown: those that were judged, the current one, and the next ones.

import { get, path, query } from "./api.js";

const BLOCK = 50; // cards asked for at once
const AHEAD = 12; // ask for more when fewer are left

const pairKey = (head, tail) => `${head.id}\n${tail?.id ?? ""}`;

// A place on the trail: a card, the tail that is shown with it, and the verdict that was given there.
const placeOf = (card) => ({ card, tail: card.tail ?? card.suggestions[0]?.tail ?? null, item: null, notice: null, key: pairKey(card.head, card.tail) });

export class Trail {
  constructor(relation, filters, signal) {
    Object.assign(this, { relation, filters, signal, places: [], position: 0, total: 0, pending: null, exhausted: false });
  }

  get here() {
    return this.places[this.position] ?? null;
  }

  get ahead() {
    return this.places.slice(this.position + 1);
  }

  // Makes the card of a head the current one.
  async visit(head) {
    const card = await get(`${path("relations", this.relation, "cards", "one")}${query({ head })}`, { signal: this.signal });
    const old = this.places.findIndex(({ key }) => key === pairKey(card.head, card.tail));
    if (old >= 0) this.position = old;
    else {
      this.position = Math.min(this.position + 1, this.places.length);
      this.places.splice(this.position, 0, placeOf(card));
    }
  }

  // Adds cards at the end; one request at a time.
  more() {
    this.pending ??= this.#append().finally(() => { this.pending = null; });
    return this.pending;
  }

  needsMore() {
    return !this.exhausted && this.places.length - this.position <= AHEAD;
  }

  async #append() {
    const seen = new Set(this.places.map(({ key }) => key));
    let cursor = null;
    do { // from the start, as judged cards are no longer there; those that were skipped are passed over
      const page = await get(`${path("relations", this.relation, "cards")}${query({ ...this.filters, limit: BLOCK, cursor })}`, { signal: this.signal });
      const found = page.cards.filter((card) => card.tail !== null && !seen.has(pairKey(card.head, card.tail)));
      this.places.push(...found.map(placeOf));
      this.total = page.total;
      cursor = page.next;
      this.exhausted = cursor === null;
    } while (cursor !== null && this.places.length - this.position <= AHEAD);
  }

  // Asks for the next cards anew, as they may have changed; the current one stays.
  async refill() {
    await this.pending;
    this.places.splice(this.position + 1, Infinity, ...this.ahead.filter(({ item }) => item !== null));
    this.exhausted = false;
    await this.more();
  }

  step(by) {
    this.position = Math.max(0, Math.min(this.places.length, this.position + by));
  }

  // Goes to where a verdict was given; null if it was not given on this trail.
  find(key) {
    const place = this.places.findIndex(({ item }) => item?.key === key);
    if (place < 0) return null;
    this.position = place;
    return this.here;
  }

  // Someone else has judged a head: it is no longer ahead, and the current card says so.
  judgedElsewhere(entry) {
    const kept = this.ahead.filter(({ card, item }) => item !== null || card.head.id !== entry.head.id);
    this.places.splice(this.position + 1, Infinity, ...kept);
    if (this.here?.card.head.id === entry.head.id) this.here.notice = entry;
  }
}
