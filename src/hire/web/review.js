// Reviewing: one card, a verdict, the next card.

import { get, path, query } from "./api.js";
import { VERDICTS, cardView, tailByNumber, verdictBar } from "./card.js";
import { current, onRelation } from "./desk.js";
import { $, button, count, debounced, make, say } from "./dom.js";
import { emptyReview } from "./empty.js";
import { entityField } from "./entity-field.js";
import { openEntity } from "./entity.js";
import { namesOf, pathsOf } from "./evidence.js";
import { Explanations } from "./explanations.js";
import { graphView } from "./graph.js";
import { setKeys } from "./keys.js";
import { listen } from "./live.js";
import { lastLine, noticeOf, queueList } from "./notices.js";
import * as outbox from "./outbox.js";
import { isAbort, showProblem } from "./problems.js";
import { go, note } from "./router.js";
import { client } from "./session.js";
import { Trail } from "./trail.js";

const DWELL = 90; // milliseconds on a card before its reasons are asked for
const PREFETCHED = 3; // cards
const NEIGHBOURS = 10;
const ORDERS = { useful: "Most useful first", confident: "Most confident first", head: "By head", audit: "Random audit" };

export function showReview(root, { params, relation: id }, signal) {
  const order = Object.hasOwn(ORDERS, params.order) ? params.order : "useful";
  const filters = { order, min_confidence: params.min_confidence, type: params.type };
  const trail = new Trail(id, filters, signal);
  const explanations = new Explanations(id, signal);
  const graph = graphView({ neighbours, open: openEntity });
  const [middle, queue, last] = [make("div"), make("div"), make("p", { class: "last quiet" })];
  const bar = verdictBar(judge, undo);
  const actions = make("div", { class: "actions" }, last, bar);
  const search = make("input", { id: "search", type: "search", placeholder: "Search a head", "aria-label": "Search a head" });
  const tools = make("div", { class: "tools" }, orderSelect(order), filterChip(), make("div", { class: "field" }, search));
  root.replaceChildren(make("div", { class: "review" }, make("aside", { class: "queue", "aria-label": "Queue" }, queue),
    make("div", { class: "center" }, tools, middle, actions), make("aside", { class: "around", "aria-label": "Around the pair" }, graph.element)));
  entityField(search, ({ id: head }) => { search.value = ""; visit(head); });

  function orderSelect(chosen) {
    const options = Object.entries(ORDERS).map(([value, name]) => make("option", { value, selected: value === chosen }, name));
    return make("select", { id: "order", "aria-label": "Order", onchange: (event) => go("review", id, { ...filters, order: event.target.value }) }, options);
  }

  function filterChip() {
    if (!params.min_confidence && !params.type) return null;
    const words = [params.min_confidence && `confidence ${params.min_confidence} or higher`, params.type].filter(Boolean).join(", ");
    return button(`${words} ×`, () => go("review", id, { order }), { class: "chip", "aria-label": `Remove the filter: ${words}` });
  }

  // The current card

  const noteAddress = debounced(() => note("review", id, { ...filters, order: order === "useful" ? null : order, head: trail.here?.card.head.id }), 250);
  const explain = debounced(async (place, view) => {
    try {
      const explanation = await explanations.of(place.card.head, place.tail);
      if (trail.here !== place || explanation.tail.id !== place.tail.id) return; // another pair is shown by now
      view.explain(explanation);
      const names = namesOf(explanation);
      graph.show(place.card.head.id, place.tail.id, pathsOf(explanation), (entity) => names.get(entity));
      explanations.prefetch(trail.ahead.slice(0, PREFETCHED));
    } catch (error) {
      if (!isAbort(error) && trail.here === place) showProblem($("statement"), error);
    }
  }, DWELL);

  function paint({ focus = true } = {}) {
    const place = trail.here;
    explain.cancel();
    const relation = current();
    graph.element.hidden = place === null;
    if (place === null) middle.replaceChildren(emptyReview(relation, trail, filters, () => { trail.position = trail.skipped(); paint(); }));
    else {
      const view = cardView(relation, place, { open: openEntity, choose, find: (field) => entityField(field, choose) });
      const radio = document.activeElement?.matches("input[name=tail]");
      middle.replaceChildren(view.element);
      if (place.notice) view.element.prepend(noticeOf(place.notice));
      if (place.tail) explain(place, view);
      $("verdict-accept").disabled = $("verdict-reject").disabled = $("verdict-unsure").disabled = place.tail === null;
      if (radio) view.element.querySelector("input[name=tail]:checked")?.focus();
      else if (focus) view.element.focus({ preventScroll: true });
      noteAddress();
    }
    paintAround();
    if (trail.needsMore()) more();
  }

  // Shows what has changed without taking the focus, or what is being typed, from the person.
  function repaint() {
    if (middle.contains(document.activeElement) && document.activeElement.matches("#other-tail")) paintAround();
    else paint({ focus: document.activeElement === $("card") });
  }

  function paintAround() {
    queue.replaceChildren(queueList(trail, (position) => { trail.position = position; paint(); }));
    $("undo").disabled = !outbox.canUndo(id);
  }

  async function more() {
    const before = trail.places.length;
    const empty = trail.here === null;
    try {
      await trail.more();
    } catch (error) {
      if (!isAbort(error)) showProblem(tools, error);
      return;
    }
    if (trail.places.length === before && !empty) return;
    if (empty) paint({ focus: !root.contains(document.activeElement) || document.activeElement.id === "card" });
    else paintAround();
  }

  async function visit(head) {
    try {
      await trail.visit(head);
      paint();
    } catch (error) {
      if (!isAbort(error)) showProblem(tools, error);
    }
  }

  async function neighbours(entity) {
    const found = await get(`v1/entities/neighbors${query({ id: entity, limit: NEIGHBOURS })}`, { signal });
    return found.neighbors.map(({ relation, direction, entity: other }) => ({ relation, outgoing: direction === "out", entity: other.id, label: other.label }));
  }

  // Verdicts: each names the pair that is on the card now, whatever comes next

  function choose(tail) {
    if (!trail.here || !tail) return;
    trail.here.tail = tail;
    paint();
  }

  function judge(verdict) {
    const place = trail.here;
    if (!place || (verdict !== "no_tail" && place.tail === null)) return;
    const { head, version } = place.card;
    place.item = outbox.judge(id, { head, tail: verdict === "no_tail" ? null : place.tail, verdict, version });
    trail.step(1);
    paint();
  }

  async function undo() {
    const item = outbox.undo(id);
    if (item === null) { say("Nothing to undo"); return; }
    const place = trail.find(item.undoes);
    if (place) {
      place.item = null;
      place.tail = item.tail ?? place.tail;
      paint();
    } else await visit(item.head.id); // given before this view was opened
  }

  function onItem(item) {
    if (item?.relation !== id) return;
    lastLine(last, item);
    if (item.state === "saving") return;
    const place = trail.places.find((other) => other.item?.key === item.key || (item.verdict === "undo" && other.card.head.id === item.head.id && !other.item));
    if (place && item.card) place.card = item.card;
    if (place && item.state !== "saved") place.item = null;
    if (item.state === "saved") say(`${item.tail?.label ?? item.head.label} ${VERDICTS[item.verdict]}, saved`);
    if (place && place === trail.here) repaint();
    else paintAround();
  }

  // What happens elsewhere

  function onEvent(name, data) {
    if (name === "reset" || name === "online") refill();
    if (data.relation !== id) return;
    if (name === "verdict" && data.client !== client) {
      trail.judgedElsewhere(data);
      if (trail.here?.notice === data) repaint();
      else paintAround();
    }
    if (name === "batch" || (name === "relation" && ["learned", "refreshed"].includes(data.change))) refill();
    if (name === "job" && trail.here === null) refill();
  }

  const refill = debounced(async () => {
    explanations.clear();
    const empty = trail.here === null;
    try {
      await trail.refill();
    } catch (error) {
      if (!isAbort(error)) showProblem(tools, error);
      return;
    }
    if (empty) paint({ focus: false });
    else paintAround();
  }, 400);

  const digits = Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => [number, () => trail.here && choose(tailByNumber(trail.here, number))]));
  setKeys({
    ...digits, a: () => judge("accept"), x: () => judge("reject"), " ": () => judge("unsure"), n: () => judge("no_tail"), z: undo,
    j: () => { if (trail.here) { trail.step(1); paint(); } }, k: () => { trail.step(-1); paint(); },
    e: () => trail.here?.tail && openEntity(trail.here.tail.id), "/": () => { search.focus(); search.select(); },
  });
  const ends = [listen(onEvent), outbox.onChange(onItem), onRelation(() => trail.here === null && paint({ focus: false }))];
  signal.addEventListener("abort", () => { for (const end of [...ends, refill.cancel, explain.cancel, noteAddress.cancel]) end(); });

  return start();

  async function start() {
    if (params.head) await visit(params.head);
    else {
      await trail.more();
      paint();
    }
    say(`${count(trail.total, "card")} to review`);
  }
}
