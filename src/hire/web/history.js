// Everything that was said about a relation: who, when, about which pair, and what the model thought at the time.

import { get, path, post, query } from "./api.js";
import { VERDICTS } from "./card.js";
import { button, count, debounced, label, make, probability, say } from "./dom.js";
import { exportPanel } from "./export.js";
import { setKeys } from "./keys.js";
import { listen } from "./live.js";
import * as outbox from "./outbox.js";
import { Pages } from "./pages.js";
import { beside } from "./problems.js";
import { origin } from "./session.js";

const ENTRIES = 50;
const KINDS = { accept: "accepted", import: "imported", revert: "reverted" };
const ofDay = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const ofYear = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "short" });

function time(at) {
  const date = new Date(at);
  const shown = (date.toDateString() === new Date().toDateString() ? ofDay : ofYear).format(date);
  return make("time", { datetime: at, title: date.toLocaleString() }, shown);
}

export async function showHistory(root, { relation: id }, signal) {
  setKeys({});
  const exports = exportPanel(id, signal);
  const batches = make("ul", { class: "batches" });
  const total = make("p", { class: "quiet", role: "status" });
  const verdict = verdictSelect(() => pages.reload());
  const tools = make("div", { class: "tools" }, make("h2", {}, "History"), verdict, total);
  const pages = new Pages({
    caption: "Verdicts, newest first",
    class: "log",
    columns: ["When", "Who", "Pair", "Verdict", "Confidence", make("span", { class: "unseen" }, "Undo")],
    ask: async (cursor) => {
      const chosen = query({ verdict: verdict.value, limit: ENTRIES, cursor });
      const { entries, ...page } = await get(`${path("relations", id, "history")}${chosen}`, { signal });
      return { items: entries, ...page };
    },
    rowOf: (entry) => rowOf(id, entry),
    told: (count) => total.replaceChildren(entryCount(count)),
  });
  const log = make("section", { class: "panel" }, tools, batches, pages.table, pages.button);
  root.replaceChildren(make("div", { class: "two history" }, log, exports.element));

  async function reload() {
    exports.update();
    const [found] = await Promise.all([get(path("relations", id, "batches"), { signal }), pages.reload()]);
    batches.replaceChildren(...found.batches.map((batch) => batchLine(batch, batches, reload)));
  }

  const changed = debounced(() => reload().catch(() => {}), 300);
  const end = listen((name, data) => {
    if (name === "reset" || (data.relation === id && name !== "job")) changed();
  });
  signal.addEventListener("abort", () => {
    end();
    changed.cancel();
  });
  await reload();
}

const entryCount = (number) => count(number, "entry", "entries");

function verdictSelect(onchange) {
  const options = Object.entries(VERDICTS).map(([value, name]) => make("option", { value }, name));
  return make("select", { "aria-label": "Verdicts", onchange }, make("option", { value: "" }, "All verdicts"), options);
}

function rowOf(id, entry) {
  const { head, tail, verdict, by, at, confidence, model, undone_by: undone, batch } = entry;
  const pair = make("td", {}, label(head.label), tail && [" → ", label(tail.label)]);
  const undo =
    undone === null &&
    verdict !== "undo" &&
    button("Undo", () => outbox.undoEntry(id, entry), {
      class: "link",
      "aria-label": `Undo ${head.label}, ${tail?.label ?? "no tail"}`,
    });
  return make(
    "tr",
    { class: undone === null ? null : "undone" },
    make("td", {}, time(at)),
    make("td", {}, label(by)),
    pair,
    make(
      "td",
      {},
      make("span", { class: `state ${verdict}` }, VERDICTS[verdict]),
      batch && make("span", { class: "quiet" }, " in bulk"),
    ),
    make("td", { class: "number", title: model }, confidence === null ? "" : probability(confidence)),
    make("td", {}, undo),
  );
}

function batchLine(batch, list, reload) {
  const words = [
    `${count(batch.entries, "fact")} ${KINDS[batch.kind]} by `,
    label(batch.by),
    ", ",
    time(batch.at),
    batch.kind === "accept" && `, ${batch.threshold} or higher`,
  ];
  const revert =
    !batch.reverted &&
    batch.kind !== "revert" &&
    button(
      "Revert",
      beside(list, async () => {
        await post(path("batches", batch.id, "revert"), origin());
        say(`${count(batch.entries, "fact")} reverted`);
        await reload();
      }),
      { class: "link revert" },
    );
  return make(
    "li",
    { class: batch.reverted ? "undone" : null },
    make("span", {}, words, batch.reverted && ", reverted"),
    revert,
  );
}
