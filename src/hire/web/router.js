// The address of what is shown: #/RELATION/VIEW?head=HEAD. Back and forward, bookmarks and other tabs show the same.

export const VIEWS = { review: "Review", table: "Table", history: "History", references: "References" }; // of a relation
const OTHERS = ["start", "teach"];

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [first = "", second = ""] = path.split("/").map(decodeURIComponent);
  const params = Object.fromEntries(new URLSearchParams(query));
  if (!first || OTHERS.includes(first)) return { view: first || "start", relation: null, params };
  return { view: Object.hasOwn(VIEWS, second) ? second : "review", relation: first, params };
}

export function address(view, relation = null, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  if (relation === null) return view === "start" ? "#/" : `#/${view}`;
  return `#/${encodeURIComponent(relation)}/${view}${query}`;
}

// Show something else, as a new entry of the browser's history.
export function go(...place) {
  location.hash = address(...place);
}

// Note what is shown in the address, without a new entry: Back leaves a review, not one card of it.
export function note(...place) {
  history.replaceState(null, "", address(...place));
}
