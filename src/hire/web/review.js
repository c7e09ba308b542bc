// Reviewing: one card, a verdict, the next card.

import { get, query } from "./api.js";
import { VERDICTS, cardView, tailByNumber, verdictBar } from "./card.js";
import { current, onRelation } from "./desk.js";
import { $, count, debounced, make, say } from "./dom.js";
import { emptyReview } from "./empty.js";
import { entityField } from "./entity-field.js";
import { openEntity } from "./entity.js";
import { namesOf, pathsOf } from "./evidence.js";
import { Explanations } from "./explanations.js";
import { GraphView } from "./graph.js";
import { setKeys } from "./keys.js";
import { listen } from "./live.js";
import { lastLine, noticeOf, queueList } from "./notices.js";
import * as outbox from "./outbox.js";
import { isAbort, showProblem } from "./problems.js";
import { filtersOf, reviewTools } from "./review-tools.js";
import { note } from "./router.js";
import { client } from "./session.js";
import { Trail } from "./trail.js";

const DWELL = 130; // milliseconds on a card before its reasons are asked for
const PREFETCHED = 3; // cards whose reasons are asked for ahead of time
const REFILL_PAUSE = 400,
  NOTE_PAUSE = 250; // milliseconds
const MAX_NEIGHBORS = 10;

export const showReview = (root, route, signal) => new ReviewView(root, route, signal).start(route.params.head);

class ReviewView {
  constructor(root, { params, relation }, signal) {
    this.id = relation;
    this.root = root;
    this.signal = signal;
    this.filters = filtersOf(params);
    this.trail = new Trail(relation, this.filters, signal);
    this.explanations = new Explanations(relation, signal);
    this.graph = new GraphView({ neighbors: (entity) => this.neighbors(entity), open: openEntity });
    this.tools = reviewTools(relation, this.filters, (head) => this.visit(head));
    this.card = make("div");
    this.queue = make("aside", { class: "queue", "aria-label": "Queue" });
    this.last = make("p", { class: "last quiet" });
    this.verdicts = verdictBar(
      (verdict) => this.judge(verdict),
      () => this.undo(),
    );
    this.noteAddress = debounced(() => this.#noteAddress(), NOTE_PAUSE);
    this.explain = debounced((place, view) => this.tried($("statement"), () => this.#explain(place, view)), DWELL);
    this.refill = debounced(() => this.tried(this.tools.element, () => this.#refill()), REFILL_PAUSE);
  }

  async start(head) {
    const actions = make("div", { class: "actions" }, this.last, this.verdicts);
    const center = make("div", { class: "center" }, this.tools.element, this.card, actions);
    const around = make("aside", { class: "around", "aria-label": "Around the pair" }, this.graph.element);
    this.root.replaceChildren(make("div", { class: "review" }, this.queue, center, around));
    this.#listen();
    if (head) await this.visit(head);
    if (this.trail.here === null) {
      await this.trail.more();
      this.paint();
    }
    say(`${count(this.trail.total, "card")} to review`);
  }

  #listen() {
    setKeys(this.#keys());
    const ends = [
      listen((name, data) => this.onEvent(name, data)),
      outbox.onChange((item) => item?.relation === this.id && this.onItem(item)),
      onRelation(() => this.trail.here === null && this.paint({ focus: false })),
      this.refill.cancel,
      this.explain.cancel,
      this.noteAddress.cancel,
    ];
    this.signal.addEventListener("abort", () => ends.forEach((end) => end()));
  }

  #keys() {
    const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => [number, () => this.chooseNumber(number)]);
    return {
      ...Object.fromEntries(digits),
      a: () => this.judge("accept"),
      x: () => this.judge("reject"),
      " ": () => this.judge("unsure"),
      n: () => this.judge("no_tail"),
      z: () => this.undo(),
      j: () => this.trail.here && this.goTo(this.trail.position + 1),
      k: () => this.goTo(this.trail.position - 1),
      e: () => this.trail.here?.tail && openEntity(this.trail.here.tail.id),
      "/": () => this.tools.search.focus(),
    };
  }

  // Does some work, and shows what goes wrong after an element.
  async tried(element, work) {
    try {
      await work();
    } catch (error) {
      if (!isAbort(error)) showProblem(element, error);
    }
  }

  // What is shown

  paint({ focus = true } = {}) {
    const place = this.trail.here;
    this.explain.cancel();
    this.graph.element.hidden = place === null;
    if (place === null)
      this.card.replaceChildren(
        emptyReview(current(), this.trail, this.filters, () => this.goTo(this.trail.skipped())),
      );
    else this.#paintCard(place, focus);
    for (const button of this.verdicts.querySelectorAll(".of-tail")) button.disabled = !place?.tail;
    this.paintAround();
    if (this.trail.needsMore()) this.more();
  }

  #paintCard(place, focus) {
    const choose = (tail) => this.choose(tail);
    const onRadio = document.activeElement?.matches("input[name=tail]"); // arrows go from tail to tail
    const view = cardView(current(), place, { open: openEntity, choose, find: (field) => entityField(field, choose) });
    if (place.notice) view.element.prepend(noticeOf(place.notice));
    this.card.replaceChildren(view.element);
    if (onRadio) view.element.querySelector("input[name=tail]:checked")?.focus();
    else if (focus) {
      view.element.focus({ preventScroll: true });
      if (view.element.getBoundingClientRect().top < 0) view.element.scrollIntoView(); // the last one was scrolled
    }
    if (place.tail) this.#explainSoon(place, view);
    this.noteAddress();
  }

  // At once if the reasons were asked for ahead of time, otherwise once the person stays on the card.
  #explainSoon(place, view) {
    if (this.explanations.has(place.card.head, place.tail)) this.explain.now(place, view);
    else this.explain(place, view);
  }

  paintAround() {
    this.queue.replaceChildren(queueList(this.trail, (position) => this.goTo(position)));
    $("undo").disabled = !outbox.canUndo(this.id);
  }

  // Shows what has changed without taking the focus, or what is being typed, from the person.
  repaint() {
    if (document.activeElement?.id === "other-tail") this.paintAround();
    else this.paint({ focus: document.activeElement === $("card") });
  }

  async #explain(place, view) {
    const { head } = place.card;
    const explanation = await this.explanations.of(head, place.tail);
    if (this.trail.here !== place || explanation.tail.id !== place.tail.id) return; // another pair is shown by now
    const names = namesOf(explanation);
    view.explain(explanation);
    this.graph.show(head.id, place.tail.id, pathsOf(explanation), (entity) => names.get(entity));
    this.explanations.prefetch(this.trail.ahead.slice(0, PREFETCHED));
  }

  async neighbors(entity) {
    const address = `v1/entities/neighbors${query({ id: entity, limit: MAX_NEIGHBORS })}`;
    return (await get(address, { signal: this.signal })).neighbors;
  }

  #noteAddress() {
    const order = this.filters.order === "useful" ? null : this.filters.order;
    note("review", this.id, { ...this.filters, order, head: this.trail.here?.card.head.id });
  }

  // Going from card to card

  goTo(position) {
    this.trail.goTo(position);
    this.paint();
  }

  visit(head) {
    return this.tried(this.tools.element, async () => {
      await this.trail.visit(head);
      this.paint();
    });
  }

  more() {
    const empty = this.trail.here === null;
    return this.tried(this.tools.element, async () => {
      await this.trail.more();
      if (empty) this.paint({ focus: !this.root.contains(document.activeElement) });
      else this.paintAround();
    });
  }

  async #refill() {
    const empty = this.trail.here === null;
    this.explanations.clear();
    await this.trail.refill();
    if (empty) this.paint({ focus: false });
    else this.paintAround();
  }

  // Verdicts: each names the pair that is on the card now, whatever comes next

  choose(tail) {
    if (!this.trail.here || !tail) return;
    this.trail.here.tail = tail;
    this.paint();
  }

  chooseNumber(number) {
    if (this.trail.here) this.choose(tailByNumber(this.trail.here, number));
  }

  judge(verdict) {
    const place = this.trail.here;
    if (!place || (verdict !== "no_tail" && place.tail === null)) return;
    const { head, version } = place.card;
    const tail = verdict === "no_tail" ? null : place.tail;
    place.item = outbox.judge(this.id, { head, tail, verdict, version });
    this.goTo(this.trail.position + 1);
  }

  async undo() {
    const item = outbox.undo(this.id);
    if (item === null) {
      say("Nothing to undo");
      return;
    }
    const given = this.trail.find(item.undoes);
    if (!given) await this.visit(item.head.id); // it was given before this view was opened
    const place = this.trail.here;
    if (place?.card.head.id !== item.head.id) return;
    place.item = null;
    place.tail = item.tail ?? place.tail;
    this.paint();
  }

  // A verdict is on its way, saved, or refused.
  onItem(item) {
    lastLine(this.last, item);
    if (item.state === "saving") return;
    const place = this.trail.placeOf(item);
    if (place && item.card) place.card = item.card;
    if (place && item.state !== "saved") place.item = null;
    if (item.state === "saved") say(`${item.tail?.label ?? item.head.label} ${VERDICTS[item.verdict]}, saved`);
    if (place && place === this.trail.here) this.repaint();
    else this.paintAround();
  }

  // Something has happened elsewhere.
  onEvent(name, data) {
    if (name === "reset" || name === "online") this.refill();
    if (data.relation !== this.id) return;
    if (name === "verdict" && data.client !== client) {
      this.trail.judgedElsewhere(data);
      if (this.trail.here?.notice === data) this.repaint();
      else this.paintAround();
    }
    if (name === "batch" || (name === "relation" && ["learned", "refreshed"].includes(data.change))) this.refill();
    if (name === "job" && this.trail.here === null) this.refill();
  }
}
