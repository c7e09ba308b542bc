// The bar above every view of a relation: its name, the views, and how far completing it has come.

import { path, post } from "./api.js";
import { $, button, count, duration, label, make, percent } from "./dom.js";
import { current, onRelation, setRelation } from "./desk.js";
import { beside } from "./problems.js";
import { VIEWS, address } from "./router.js";
import { origin } from "./session.js";

let shownView = "review";

export function showBar(view) {
  shownView = view;
  paint(current());
}

export const startBar = () => onRelation(paint);

function paint(relation) {
  const bar = $("relation-bar");
  bar.hidden = relation === null;
  if (relation === null) {
    bar.replaceChildren();
    return;
  }
  const focused = bar.contains(document.activeElement) ? document.activeElement.id : null;
  bar.replaceChildren(title(relation), tabs(relation), jobLine(relation));
  if (focused) $(focused)?.focus();
}

function title(relation) {
  const learning = relation.learning && make("span", { class: "learning" }, "learning from verdicts");
  const words = make("p", { class: "quiet" }, summary(relation), learning);
  return make("div", { class: "relation-title" }, make("h1", {}, label(relation.name)), words);
}

function summary({ deleted, heads, facts, counts: { open = 0 }, references }) {
  if (deleted) return "deleted by someone else";
  if (!heads) return count(references.length, "reference");
  return `${count(facts, "fact")} accepted, ${count(open, "head")} to review`;
}

function tabs(relation) {
  return make(
    "nav",
    { class: "tabs", "aria-label": "Views" },
    Object.entries(VIEWS).map(([view, name]) =>
      make(
        "a",
        { id: `tab-${view}`, href: address(view, relation.id), "aria-current": view === shownView ? "page" : null },
        name,
      ),
    ),
  );
}

function jobLine(relation) {
  const { job } = relation;
  if (!job || job.state === "done") return "";
  const share = job.heads ? job.done / job.heads : 0;
  const line = make(
    "div",
    { class: `job ${job.state}` },
    make("progress", { value: share, max: 1, "aria-label": "Heads completed" }),
    make("p", {}, wordsOf(job, share)),
  );
  if (job.state === "running" || job.state === "queued")
    line.append(
      button(
        "Cancel",
        beside(line, () => change("cancel")),
        { id: "job-cancel" },
      ),
    );
  else
    line.append(
      button(
        "Resume",
        beside(line, () => change("resume")),
        { id: "job-resume" },
      ),
    );
  return line;
}

function wordsOf(job, share) {
  const done = `${job.done.toLocaleString("en")} of ${count(job.heads, "head")}`;
  if (job.state === "queued") return "Waiting to start";
  if (job.state === "running")
    return `Completing: ${done}, ${percent(share)}${job.seconds_left === null ? "" : `, ${duration(job.seconds_left)} left`}`;
  return job.state === "cancelled"
    ? `Cancelled after ${done}`
    : `Stopped after ${done}: ${job.problem ?? "unknown reason"}`;
}

async function change(what) {
  const relation = current();
  const job = await post(path("jobs", relation.job.id, what), {});
  if (current()?.id === relation.id) setRelation({ ...current(), job });
}

// Completes the relation for all of its heads, as a job.
export async function complete(relation) {
  const job = await post(path("relations", relation.id, "jobs"), { by: origin().by });
  if (current()?.id === relation.id) setRelation({ ...current(), job });
  return job;
}
