// The page starts here: it shows the view that the address names, and keeps what all views have in common.

import { get } from "./api.js";
import { current, openRelation, startDesk } from "./desk.js";
import { $, count, make } from "./dom.js";
import { closeEntity } from "./entity.js";
import { showHistory } from "./history.js";
import { setKeys, startKeys } from "./keys.js";
import { connect, listen } from "./live.js";
import { startNotices } from "./notices.js";
import * as outbox from "./outbox.js";
import { Problem, isAbort, problemText } from "./problems.js";
import { showReferences } from "./references.js";
import { showBar, startBar } from "./relation-bar.js";
import { showReview } from "./review.js";
import { parse } from "./router.js";
import { setWho, who } from "./session.js";
import { showStart } from "./start.js";
import { showTable } from "./table.js";
import { showTeach } from "./teach.js";

const SHOW = {
  start: showStart,
  teach: showTeach,
  review: showReview,
  table: showTable,
  history: showHistory,
  references: showReferences,
};
let leaving = null;
let offline = false;

async function show() {
  leaving?.abort(); // what the last view still waits for is of no interest any more
  leaving = new AbortController();
  const { signal } = leaving;
  const route = parse(location.hash);
  if ($("entity").open) closeEntity();
  setKeys({});
  const root = make("div", { class: "view" }, make("p", { class: "quiet" }, "Loading…"));
  $("main").replaceChildren(root);
  try {
    await openRelation(route.relation, signal);
    if (signal.aborted) return;
    showBar(route.view);
    setTitle();
    await SHOW[route.view](root, route, signal);
  } catch (error) {
    if (isAbort(error) || signal.aborted) return;
    if (!(error instanceof Problem)) console.error(error);
    root.replaceChildren(
      make(
        "div",
        { class: "panel narrow", role: "alert" },
        make("p", {}, problemText(error)),
        make("a", { class: "button", href: "#/" }, "To the start"),
      ),
    );
  }
}

function showSaving() {
  const waiting = outbox.unsaved();
  const line = $("saving");
  line.className = waiting ? (outbox.trouble ? "trouble" : "busy") : offline ? "trouble" : "done";
  if (!waiting) line.textContent = offline ? "Not connected" : "All saved";
  else if (outbox.trouble)
    line.textContent = `${count(waiting, "verdict")} not saved yet: ${problemText(outbox.trouble)} Trying again.`;
  else line.textContent = `Saving ${waiting}…`;
}

function startWho() {
  const paint = () => $("who").replaceChildren(make("span", { class: "quiet" }, "as "), who());
  $("who").addEventListener("click", () => {
    $("who-name").value = who() === "anonymous" ? "" : who();
    $("who-dialog").showModal();
  });
  $("who-form").addEventListener("submit", () => {
    setWho($("who-name").value);
    paint();
  });
  paint();
}

async function showGraph() {
  const graph = await get("v1/graph");
  $("graph").textContent = graph.name;
  setTitle();
}

function setTitle() {
  document.title = [current()?.name, $("graph").textContent, "HiRe"].filter(Boolean).join(" · ");
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
$("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
window.addEventListener("hashchange", show);
window.addEventListener("beforeunload", (event) => {
  if (outbox.unsaved()) event.preventDefault();
});
outbox.onChange(showSaving);
listen((name) => {
  if (name !== "offline" && name !== "online") return;
  offline = name === "offline";
  showSaving();
});
showSaving();
startWho();
startKeys();
startBar();
startNotices();
startDesk();
showGraph().catch(() => {}); // the view says what is wrong
outbox.send();
show();
connect();
