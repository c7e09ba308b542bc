// The cards of a review in the order they are shown: those that were judged, the current one, and the next ones.

import { get, path, query } from "./api.js";

const BLOCK = 50; // cards asked for at once
const AHEAD = 30; // ask for more when fewer are left
const MAX_TAILS = 10;

const pairKey = (head, tail) => `${head.id}\n${tail?.id ?? ""}`;

// A place on the trail: a card, the tail that is shown with it, and the verdict that was given there.
const newPlace = (card) => ({
  card,
  tail: card.tail ?? card.suggestions[0]?.tail ?? null,
  item: null,
  notice: null,
  key: pairKey(card.head, card.tail),
});

export class Trail {
  constructor(relation, filters, signal) {
    Object.assign(this, {
      relation,
      filters,
      signal,
      places: [],
      position: 0,
      total: 0,
      pending: null,
      exhausted: false,
    });
  }

  get here() {
    return this.places[this.position] ?? null;
  }

  get ahead() {
    return this.places.slice(this.position + 1);
  }

  // Makes the card of a head the current one; the one that was current comes next.
  async visit(head) {
    const card = await this.#card(head);
    const old = this.places.findIndex(({ key, item }) => item === null && key === pairKey(card.head, card.tail));
    if (old >= 0) this.places.splice(old, 1);
    if (old >= 0 && old < this.position) this.position -= 1;
    this.places.splice(this.position, 0, newPlace(card));
  }

  // The card of any head; one that is not in the queue, or not completed yet, is answered now.
  async #card(head) {
    const address = path("relations", this.relation);
    const stored = await get(`${address}/cards/one${query({ head })}`, { signal: this.signal }).catch((error) => {
      if (error.code === "not-found") return null;
      throw error;
    });
    if (stored?.suggestions.length) return stored;
    const { head: found, answers } = await get(`${address}/answers${query({ head, k: MAX_TAILS })}`, {
      signal: this.signal,
    });
    return {
      type: null,
      state: "open",
      version: null,
      known: [],
      ...stored,
      head: found,
      tail: answers[0]?.tail ?? null,
      suggestions: answers,
    };
  }

  // Adds cards at the end; one request at a time.
  more() {
    this.pending ??= this.#append().finally(() => {
      this.pending = null;
    });
    return this.pending;
  }

  needsMore() {
    return !this.exhausted && this.places.length - this.position <= AHEAD;
  }

  async #append() {
    let cursor = null;
    do {
      // from the start, as judged cards are no longer there; those that were skipped are passed over
      const page = await this.#page(cursor);
      this.places.push(...this.#unseen(page.cards));
      cursor = page.next;
      this.exhausted = cursor === null;
    } while (cursor !== null && this.places.length - this.position <= AHEAD);
  }

  async #page(cursor) {
    const page = await get(
      `${path("relations", this.relation, "cards")}${query({ ...this.filters, limit: BLOCK, cursor })}`,
      { signal: this.signal },
    );
    this.total = page.total;
    return page;
  }

  #unseen(cards) {
    const seen = new Set(this.places.map(({ key }) => key));
    return cards.filter((card) => card.tail !== null && !seen.has(pairKey(card.head, card.tail))).map(newPlace);
  }

  // Asks for the next cards anew, as they may have changed; the current one stays, and none is missing meanwhile.
  async refill() {
    await this.pending;
    const page = await this.#page(null);
    this.places.splice(this.position + 1, Infinity, ...this.ahead.filter(({ item }) => item !== null));
    this.places.push(...this.#unseen(page.cards));
    this.exhausted = page.next === null;
  }

  // The first card that was passed over; -1 if there is none.
  skipped() {
    return this.places.findIndex(({ card, item }) => item === null && card.state === "open");
  }

  goTo(position) {
    this.position = Math.max(0, Math.min(this.places.length, position));
  }

  // Where a verdict was given, or, once it is undone, where it can be given again.
  placeOf({ key, verdict, head }) {
    const undone = ({ card, item }) => verdict === "undo" && item === null && card.head.id === head.id;
    return this.places.find((place) => place.item?.key === key || undone(place)) ?? null;
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
