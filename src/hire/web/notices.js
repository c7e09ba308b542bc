// What happened around a card: the last verdict and whether it is saved, others' verdicts, conflicts, the queue.

import { VERDICTS } from "./card.js";
import { button, label, make } from "./dom.js";
import { problemText } from "./problems.js";

const BEFORE = 5, AFTER = 12; // cards in the queue around the current one
const SIGNS = { accept: "✓", reject: "✗", unsure: "?", no_tail: "∅" };

const pairOf = ({ head, tail }) => [label(head.label), ...(tail ? [" → ", label(tail.label)] : [])];

// The last verdict; it is called saved once the service has saved it.
export function lastLine(line, item) {
  const states = { saving: "saving…", saved: "saved", conflict: "not saved: see above", failed: "not saved: see above" };
  line.className = `last quiet ${item.state}`;
  line.replaceChildren(...pairOf(item), `: ${VERDICTS[item.verdict]}, `, make("span", { class: "saved-state" }, states[item.state]));
}

// Someone else has judged the head that is shown.
export function noticeOf(entry) {
  return make("p", { class: "notice", role: "status" }, `${entry.by} has just given a verdict: `, ...pairOf(entry), `: ${VERDICTS[entry.verdict]}.`);
}

export function conflictNotice(item, overrule) {
  const { conflict } = item;
  const notice = make("div", { class: "notice conflict", role: "alert" },
    make("p", {}, "Not saved: you said ", ...pairOf(item), ` is ${VERDICTS[item.verdict]}, but ${conflict.by} has said: `, ...pairOf(conflict), ` is ${VERDICTS[conflict.verdict]}.`));
  notice.append(
    button(`Keep ${conflict.by}'s verdict`, () => notice.remove()),
    button("Overrule with mine", () => { notice.remove(); overrule(item); }, { class: "overrule" }));
  return notice;
}

export function failureNotice(item) {
  const notice = make("div", { class: "notice conflict", role: "alert" }, make("p", {}, "Not saved: ", ...pairOf(item), `: ${VERDICTS[item.verdict]}. ${problemText(item.problem)}`));
  notice.append(button("Dismiss", () => notice.remove()));
  return notice;
}

// The cards around the current one; not tab stops, as j and k do the same.
export function queueList(trail, show) {
  const first = Math.max(0, trail.position - BEFORE);
  return make("ol", {}, trail.places.slice(first, trail.position + AFTER).map(({ card, tail, item }, number) => {
    const position = first + number;
    const current = position === trail.position;
    return make("li", {}, button(
      [make("span", { class: `sign ${item?.verdict ?? ""} ${item?.state ?? ""}`, "aria-hidden": "true" }, item ? SIGNS[item.verdict] : ""),
        make("span", { class: "pair" }, label(card.head.label), make("small", {}, label(tail?.label ?? "")))],
      () => show(position), { tabindex: -1, "aria-current": current ? "true" : null }));
  }));
}
