// The relation that is being worked on, kept up to date with what happens to it anywhere.

import { get, path } from "./api.js";
import { debounced } from "./dom.js";
import { listen } from "./live.js";
import { isAbort } from "./problems.js";

const PAUSE = 250; // milliseconds; a hundred verdicts are one change

let relation = null;
const listeners = new Set();

export const current = () => relation;

export function onRelation(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function setRelation(changed) {
  relation = changed;
  for (const listener of [...listeners]) listener(relation);
}

// Opens a relation; null closes the one that is open.
export async function openRelation(id, signal) {
  if (id === null) setRelation(null);
  else if (relation?.id !== id) setRelation(await get(path("relations", id), { signal }));
}

const refresh = debounced(async () => {
  const { id } = relation ?? {};
  if (id === undefined) return;
  try {
    const changed = await get(path("relations", id));
    if (relation?.id === id) setRelation(changed);
  } catch (error) {
    if (!isAbort(error) && error.status === 404 && relation?.id === id) setRelation({ ...relation, deleted: true });
  }
}, PAUSE);

export function startDesk() {
  listen((name, data) => {
    if (name === "reset" || name === "online") refresh();
    if (relation === null || data.relation !== relation.id) return;
    if (name === "job") setRelation({ ...relation, job: data });
    if (name !== "job" || data.state !== "running") refresh();
  });
}
