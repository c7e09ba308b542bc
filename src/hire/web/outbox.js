// Verdicts on their way to the service: one after the other, in the order they were given, until each is saved.
//
// A verdict names the pair that was shown and has a key of its own, so that sending it again after a lost connection or a
// restart of the service saves it once. What is not saved yet survives a reload of the page.

import { path, post } from "./api.js";
import { origin, randomId } from "./session.js";

const FIRST_PAUSE = 300,
  LONGEST_PAUSE = 4000; // milliseconds before trying again
const WAITING = "hire.unsaved",
  GIVEN = "hire.given";

let queue = restored(WAITING); // not saved yet
const given = restored(GIVEN).map((item) => queue.find(({ key }) => key === item.key) ?? item); // what undo can take back
const listeners = new Set();
let sending = false;
export let trouble = null; // why nothing can be saved at the moment

function restored(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? [];
  } catch {
    return [];
  }
}

function changed(item = null) {
  const plain = given.map(({ key, relation, head, tail, entry }) => ({ key, relation, head, tail, entry }));
  keep(WAITING, queue);
  keep(GIVEN, plain);
  for (const listener of [...listeners]) listener(item);
}

function keep(name, items) {
  try {
    sessionStorage.setItem(name, JSON.stringify(items));
  } catch {
    // The browser's storage is full: verdicts are saved all the same, only a reload would forget what undo takes back.
  }
}

export const unsaved = () => queue.length;

// Calls a function with each item that changes, and with null when what is waiting changes.
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// verdict: {head, tail, verdict, version}, entities as {id, label}; `tail` is null if there is none.
export function judge(relation, { head, tail, verdict, version }, force = false) {
  const item = {
    key: randomId(),
    relation,
    head,
    tail,
    verdict,
    version,
    force,
    ...origin(),
    state: "saving",
    entry: null,
  };
  given.push(item);
  return enqueue(item);
}

export const canUndo = (relation) => given.some((item) => item.relation === relation);

// Takes the last verdict on a relation back, saved or not; null if there is none.
export function undo(relation) {
  const place = given.findLastIndex((item) => item.relation === relation);
  if (place < 0) return null;
  const [taken] = given.splice(place, 1);
  return enqueue({
    key: randomId(),
    relation,
    undoes: taken.key,
    entry: taken.entry,
    head: taken.head,
    tail: taken.tail,
    verdict: "undo",
    ...origin(),
    state: "saving",
  });
}

// Takes any entry of the history back.
export function undoEntry(relation, { entry, head, tail }) {
  const place = given.findIndex((item) => item.entry === entry);
  if (place >= 0) given.splice(place, 1);
  return enqueue({
    key: randomId(),
    relation,
    undoes: null,
    entry,
    head,
    tail,
    verdict: "undo",
    ...origin(),
    state: "saving",
  });
}

function enqueue(item) {
  queue.push(item);
  changed(item);
  send();
  return item;
}

export async function send() {
  if (sending) return;
  sending = true;
  let pause = FIRST_PAUSE;
  while (queue.length) {
    const [item] = queue;
    try {
      const saved = item.verdict === "undo" ? await sendUndo(item) : await sendVerdict(item);
      settle(item, "saved", saved);
      pause = FIRST_PAUSE;
    } catch (problem) {
      if (mayPass(problem)) {
        trouble = problem;
        changed();
        await new Promise((done) => setTimeout(done, pause));
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      } else {
        settle(item, problem.told?.conflict ? "conflict" : "failed", {
          problem,
          conflict: problem.told?.conflict ?? null,
        });
      }
    }
  }
  sending = false;
}

// No connection, a busy service, or the same request still being worked on.
const mayPass = ({ status, code }) => !status || status >= 500 || code === "in-progress" || status === 429;

function sendVerdict({ key, relation, head, tail, verdict, version, force, by, client }) {
  const body = { head: head.id, tail: tail?.id ?? null, verdict, version, force, by, client };
  return post(path("relations", relation, "verdicts"), body, key);
}

function sendUndo({ key, relation, entry, by, client }) {
  if (entry === null) return { entry: null, card: null }; // what it takes back was never saved
  return post(path("relations", relation, "undo"), { entry, by, client }, key);
}

function settle(item, state, result) {
  const entry = result.entry?.entry ?? null;
  queue = queue.filter((other) => other !== item);
  for (const other of queue) if (other.undoes === item.key) other.entry = entry;
  trouble = null;
  const isUndo = item.verdict === "undo";
  Object.assign(item, result, { state, entry: isUndo ? item.entry : entry });
  if (state !== "saved" && given.includes(item)) given.splice(given.indexOf(item), 1);
  changed(item);
}
