// What happened around a card: the last verdict and whether it is saved, others' verdicts, conflicts, the queue.

import { VERDICTS } from "./card.js";
import { $, button, label, make, shortened } from "./dom.js";
import { judge, onChange } from "./outbox.js";
import { problemText } from "./problems.js";

const MAX_LETTERS = 26; // of a label in the queue
const BEFORE = 5,
  AFTER = 12; // cards in the queue around the current one
const SIGNS = { accept: "✓", reject: "✗", unsure: "?", no_tail: "∅" };

const pairOf = ({ head, tail }) => [label(head.label), ...(tail ? [" → ", label(tail.label)] : [])];

// The last verdict; it is called saved once the service has saved it.
export function lastLine(line, item) {
  const states = { saving: "Saving", saved: "Saved", conflict: "Not saved", failed: "Not saved" };
  line.className = `last quiet ${item.state}`;
  line.replaceChildren(
    make("span", { class: "saved-state" }, states[item.state]),
    ": ",
    ...pairOf(item),
    ` ${VERDICTS[item.verdict]}`,
  );
}

// Someone else has judged the head that is shown.
export function noticeOf(entry) {
  return make(
    "p",
    { class: "notice", role: "status" },
    `${entry.by} has just given a verdict: `,
    ...pairOf(entry),
    `: ${VERDICTS[entry.verdict]}.`,
  );
}

// Verdicts that the service did not take are shown in any view, as they may be told of after the review was left.
export function startNotices() {
  onChange((item) => {
    if (item?.state !== "conflict" && item?.state !== "failed") return;
    const decidedOtherwise = item.conflict && item.verdict !== "undo";
    $("notices").append(decidedOtherwise ? conflictNotice(item) : failureNotice(item));
  });
}

function noticeWith(words, dismissal) {
  const notice = make("div", { class: "notice conflict", role: "alert" }, make("p", {}, words));
  notice.append(button(dismissal, () => notice.remove()));
  return notice;
}

const said = (item) => [...pairOf(item), ` ${VERDICTS[item.verdict]}. `];

const failureNotice = (item) => noticeWith(["Not saved: ", ...said(item), problemText(item.problem)], "Dismiss");

function conflictNotice(item) {
  const { conflict } = item;
  const words = [`Not saved, as ${conflict.by} has decided otherwise: `, ...said(conflict), "Yours: ", ...said(item)];
  const notice = noticeWith(words, `Keep ${conflict.by}'s verdict`);
  const overrule = () => {
    notice.remove();
    judge(item.relation, { ...item, version: null }, true);
  };
  notice.append(button("Overrule with mine", overrule, { class: "overrule" }));
  return notice;
}

const named = ({ label: name }) => label(shortened(name, MAX_LETTERS), { title: name });

// The cards around the current one; not tab stops, as j and k do the same.
export function queueList(trail, show) {
  const first = Math.max(0, trail.position - BEFORE);
  return make(
    "ol",
    {},
    trail.places.slice(first, trail.position + AFTER).map(({ card, tail, item }, number) => {
      const position = first + number;
      const current = position === trail.position;
      return make(
        "li",
        {},
        button(
          [
            make(
              "span",
              { class: `sign ${item?.verdict ?? ""} ${item?.state ?? ""}`, "aria-hidden": "true" },
              item ? SIGNS[item.verdict] : "",
            ),
            make("span", { class: "pair" }, named(card.head), make("small", {}, tail && named(tail))),
          ],
          () => show(position),
          { tabindex: -1, "aria-current": current ? "true" : null },
        ),
      );
    }),
  );
}
