// The page: it calls the API and shows the results. Text only ever enters the page as text, never as HTML.

const ANSWERS = 10;
const MATCHES = 8;
const TYPING_PAUSE = 120; // milliseconds
const MAX_EXAMPLES = 30;
const MAX_IMPORTED = 1000;
const SVG = "http://www.w3.org/2000/svg";

const $ = (id) => document.getElementById(id);
const state = {
  relation: null, head: null, answers: [], chosen: -1, asked: 0, newPairs: [], lastVerdict: null,
  heads: Object.create(null), labels: Object.create(null), // any name may be a key
  token: sessionStorage.getItem("token"),
};

// Creating elements

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const say = (text) => { $("status").textContent = text; };
const labelOf = (entity) => state.labels[entity] ?? entity;

function remember(pairs) {
  for (const pair of pairs) {
    state.labels[pair.head] = pair.head_label;
    state.labels[pair.tail] = pair.tail_label;
  }
}

// Calling the API; every error is shown

function showProblem(error) {
  $("problem-error").textContent = error.message;
  $("problem-remedy").textContent = error.remedy ?? "";
  $("problem").hidden = false;
}

function problem(message, remedy) {
  return Object.assign(new Error(message), { remedy });
}

async function ask(path, { method = "GET", body, signal, text = false } = {}) {
  const headers = {};
  if (state.token) headers.authorization = `Bearer ${state.token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw problem("The service does not respond.", "Check that hire serve is still running, then try again.");
  }
  if (response.status === 401) {
    await askForToken();
    return ask(path, { method, body, signal, text });
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw problem(told.error ?? `The service answered ${response.status}.`, told.remedy);
  }
  if (response.status === 204) return null;
  return text ? response.text() : response.json();
}

let tokenAsked = null;
function askForToken() { // one dialog, however many requests need it
  tokenAsked ??= new Promise((resolve) => {
    $("token-wrong").textContent = state.token ? "Wrong token." : "";
    $("token-dialog").showModal();
    $("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
    $("token-form").addEventListener("submit", () => {
      state.token = $("token").value.trim();
      sessionStorage.setItem("token", state.token);
      $("token").value = "";
      tokenAsked = null;
      resolve();
    }, { once: true });
  });
  return tokenAsked;
}

const told = (work) => async (...given) => {
  $("problem").hidden = true;
  try {
    return await work(...given);
  } catch (error) {
    if (error.name !== "AbortError") showProblem(error);
    return undefined;
  }
};

const at = (relation, what = "", query = {}) => {
  const words = new URLSearchParams(query).toString();
  return `api/relations/${encodeURIComponent(relation)}${what && `/${what}`}${words && `?${words}`}`;
};

// A field that suggests entities while you type (the combobox pattern of ARIA)

function offerEntities(input, onChosen = () => {}) {
  const list = make("ul", { class: "listbox", role: "listbox", id: `${input.id}-matches`, "aria-label": "Entities", hidden: true });
  input.after(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id })) {
    input.setAttribute(name, value);
  }
  let matches = [];
  let active = -1;
  let pending = null;
  let timer = 0;

  const close = () => {
    clearTimeout(timer);
    pending?.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const activate = (place) => {
    active = place;
    [...list.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === active)));
    if (active < 0) return;
    input.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  };
  const choose = (place) => {
    const match = matches[place];
    state.labels[match.entity] = match.label;
    input.value = match.entity;
    close();
    onChosen(match.entity);
  };
  const search = told(async () => {
    pending?.abort();
    pending = new AbortController();
    const text = input.value.trim();
    if (!text) { close(); return; }
    matches = await ask(`api/entities?${new URLSearchParams({ q: text, k: MATCHES })}`, { signal: pending.signal });
    if (document.activeElement !== input) return;
    list.replaceChildren(...matches.map((match, number) => make(
      "li", { role: "option", id: `${list.id}-${number}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); choose(number); } },
      match.label, ...(match.label === match.entity ? [] : [make("small", {}, match.entity)]),
    )));
    active = -1;
    list.hidden = !matches.length;
    input.setAttribute("aria-expanded", String(matches.length > 0));
    say(matches.length ? `${matches.length} entities found` : `No entity resembles “${text}”`);
  });
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, TYPING_PAUSE); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) { event.preventDefault(); close(); return; }
    if (list.hidden || !matches.length) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      activate((active + step + matches.length) % matches.length);
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      choose(active);
    }
  });
}

// Relations

async function refresh(chosen = state.relation?.id) {
  const relations = await ask("api/relations");
  for (const relation of relations) remember([...relation.references, ...relation.accepted, ...relation.rejected]);
  $("no-relations").hidden = relations.length > 0;
  $("relations").replaceChildren(...relations.map((relation) => make("li", {}, make(
    "button", { type: "button", "aria-pressed": String(relation.id === chosen), onclick: told(() => open(relation)) },
    relation.name, make("small", {}, `${relation.references.length} references, ${relation.accepted.length} accepted, ${relation.rejected.length} rejected`),
  ))));
  show(relations.find((relation) => relation.id === chosen) ?? null);
  return relations;
}

function show(relation) {
  state.relation = relation;
  $("no-relation").hidden = relation !== null;
  $("relation").hidden = $("judged").hidden = relation === null;
  $("answers-title").textContent = relation === null ? "Answers" : `${relation.name}: answers`;
  history.replaceState(null, "", relation === null ? "." : `#${relation.id}`);
  if (relation === null) return;
  showPairs("references", relation.references, "remove reference");
  showPairs("accepted", relation.accepted, "withdraw");
  showPairs("rejected", relation.rejected, "withdraw");
  $("export-tsv").disabled = $("export-ntriples").disabled = !relation.accepted.length;
  const heads = state.heads[relation.name] ?? relation.references.map((pair) => ({ entity: pair.head, label: pair.head_label }));
  const unique = [...new Map(heads.map((head) => [head.entity, head])).values()].slice(0, 5);
  $("heads").replaceChildren(...unique.map(({ entity, label }) => {
    state.labels[entity] = label;
    return make("button", { type: "button", onclick: told(() => predict(entity)) }, label);
  }));
}

function showPairs(id, pairs, how) {
  const none = make("li", { class: "quiet" }, "none");
  $(id).replaceChildren(...(pairs.length ? pairs.map((pair) => make("li", {}, `${pair.head_label} → ${pair.tail_label}`, make(
    "button", { type: "button", "aria-label": `${how}: ${pair.head_label}, ${pair.tail_label}`, onclick: told(() => judge(pair.head, pair.tail, null)) }, "×",
  ))) : [none]));
}

async function open(relation, head = undefined) {
  clearAnswers();
  await refresh(relation.id);
  const first = head ?? state.heads[relation.name]?.[0]?.entity;
  if (first) await predict(first);
  else { say(`${relation.name}: enter a head`); $("head").focus(); }
}

function clearAnswers() {
  Object.assign(state, { head: null, answers: [], chosen: -1 });
  $("answers").replaceChildren();
  $("why").hidden = true;
  $("head").value = "";
}

const pairKey = ({ head, tail }) => `${head}\n${tail}`;

async function tryExample({ name, references, heads }) {
  $("known").checked = true; // to compare the answers with the known facts
  const same = (relation) => relation.name === name && relation.references.map(pairKey).join() === references.map(pairKey).join();
  const relation = (await ask("api/relations")).find(same);
  const head = heads[0]?.entity;
  if (relation) await open(relation, head);
  else await teach(name, references.map(({ head, tail }) => ({ head, tail })), head);
  $("answers").querySelector(".answer")?.focus();
}

async function teach(name, references, head) {
  const relation = await ask("api/relations", { method: "POST", body: { name, references } });
  await open(relation, head);
  return relation;
}

async function showExamples() {
  const examples = await ask("api/examples");
  $("no-examples").hidden = examples.length > 0;
  for (const example of examples) {
    remember(example.references);
    state.heads[example.name] = example.heads;
  }
  $("examples").replaceChildren(...examples.slice(0, MAX_EXAMPLES).map((example) => make("li", {}, make(
    "button", { type: "button", onclick: told(() => tryExample(example)) },
    example.name, make("small", {}, example.references.map((pair) => `${pair.head_label} → ${pair.tail_label}`).join("; ")),
  ))));
}

// Teaching

function showNewPairs() {
  $("new-pairs").replaceChildren(...state.newPairs.map((pair, number) => make("li", {}, `${labelOf(pair.head)} → ${labelOf(pair.tail)}`, make(
    "button", { type: "button", "aria-label": `remove ${pair.head}, ${pair.tail}`, onclick: () => { state.newPairs.splice(number, 1); showNewPairs(); } }, "×",
  ))));
}

function addPair() {
  const head = $("new-head").value.trim();
  const tail = $("new-tail").value.trim();
  if (!head || !tail) throw problem("A reference needs a head and a tail.", "Enter both, then add the pair.");
  state.newPairs.push({ head, tail });
  $("new-head").value = $("new-tail").value = "";
  showNewPairs();
  say(`${state.newPairs.length} reference pairs`);
  $("new-head").focus();
}

async function importPairs(file) {
  if (file.size > 1 << 20) throw problem(`${file.name} is larger than 1 MiB.`, "Use fewer references: a handful is enough.");
  const lines = (await file.text()).replace(/^\uFEFF/, "").split(/\r\n|\n|\r/);
  const pairs = [];
  lines.forEach((line, number) => {
    if (!line.trim()) return;
    const cells = line.split(line.includes("\t") ? "\t" : ",").map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
    if (cells.length === 3) cells.splice(1, 1); // head, relation, tail
    if (cells.length !== 2 || cells.includes("")) {
      throw problem(`${file.name}, line ${number + 1}: expected a head and a tail.`, "Write a head and a tail per line, separated by a tab or comma.");
    }
    pairs.push({ head: cells[0], tail: cells[1] });
  });
  if (!pairs.length) throw problem(`${file.name} contains no pairs.`, "Write a head and a tail per line, separated by a tab or comma.");
  if (pairs.length > MAX_IMPORTED) throw problem(`${file.name} contains ${pairs.length} pairs.`, `Use at most ${MAX_IMPORTED}.`);
  state.newPairs.push(...pairs);
  showNewPairs();
  say(`${pairs.length} pairs from ${file.name}; press Teach`);
}

// Answers

async function predict(head, keep = null) {
  const relation = state.relation;
  const question = ++state.asked;
  const found = await ask(at(relation.id, "answers", { head, k: ANSWERS, known: $("known").checked }));
  if (question !== state.asked || state.relation?.id !== relation.id) return; // something else was asked in the meantime
  state.head = found.head;
  $("head").value = found.head;
  state.answers = found.answers;
  for (const answer of found.answers) state.labels[answer.tail] = answer.label;
  showAnswers();
  const by = found.answers[0]?.confidence === null ? "score" : "confidence";
  say(found.answers.length ? `${found.answers.length} answers for ${labelOf(head)}, ranked by ${by}` : `No answers left for ${labelOf(head)}`);
  if (keep !== null && found.answers.length) await choose(Math.min(keep, found.answers.length - 1));
  else { state.chosen = -1; $("why").hidden = true; }
}

function confidenceOf({ score, confidence }) {
  if (confidence === null) return [make("span", { class: "score" }, `score ${score.toFixed(2)}`)];
  const percent = `${Math.round(confidence * 100)} %`;
  return [make("span", { class: "score" }, make("meter", { min: 0, max: 1, value: confidence, "aria-label": "confidence" }), ` ${percent}`)];
}

function showAnswers() {
  $("answers").replaceChildren(...state.answers.map((answer, number) => {
    const mark = isReference({ head: state.head, tail: answer.tail }) ? " ✓ reference" : answer.known ? " known" : "";
    return make("li", {},
      make("button", { type: "button", class: "answer", "aria-pressed": "false", onclick: told(async () => { await choose(number); $("why").scrollIntoView({ block: "nearest" }); }), onfocus: () => { state.chosen = number; } },
        make("span", {}, `${number + 1}. ${answer.label}`, make("span", { class: "mark" }, mark)), ...confidenceOf(answer)),
      make("button", { type: "button", class: "accept", "aria-label": `accept ${answer.label}`, title: "accept (a)", onclick: told(() => judgeAnswer(number, "accepted")) }, "✓"),
      make("button", { type: "button", class: "reject", "aria-label": `reject ${answer.label}`, title: "reject (r)", onclick: told(() => judgeAnswer(number, "rejected")) }, "✗"),
    );
  }));
}

async function choose(number, focus = true) {
  state.chosen = number;
  const buttons = [...$("answers").querySelectorAll(".answer")];
  buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === number)));
  if (focus) buttons[number].focus();
  const { tail } = state.answers[number];
  const found = await ask(at(state.relation.id, "explanation", { head: state.head, tail }));
  if (state.answers[state.chosen]?.tail !== tail) return;
  Object.assign(state.labels, found.labels ?? {});
  $("why-title").textContent = `Why ${labelOf(found.tail)}?`;
  $("sentence").textContent = found.sentence;
  $("picture").replaceChildren(picture(found));
  $("rules").replaceChildren(...found.rules.map((rule) => make("li", { class: roleOf(rule) }, `${signed(rule.weight)} ${rule.for ? "" : "speaks against: "}${rule.text}`)));
  $("why").hidden = false;
}

function isReference(pair) {
  return [...state.relation.references, ...state.relation.accepted].some((other) => pairKey(other) === pairKey(pair));
}

async function judgeAnswer(number, verdict) {
  const { tail, label } = state.answers[number];
  const pair = { head: state.head, tail };
  const before = isReference(pair) ? "accepted" : null;
  if (verdict === before) { say(`${label} is already a reference`); return; }
  state.lastVerdict = { relation: state.relation.id, ...pair, before };
  await judge(state.head, tail, verdict, number);
  say(`${label} ${verdict}; ranking updated`);
}

async function undo() {
  const { head, tail, before } = state.lastVerdict;
  state.lastVerdict = null;
  await judge(head, tail, before, Math.max(0, state.chosen));
  say("Last verdict undone");
}

async function judge(head, tail, verdict, keep = null) {
  const { id } = state.relation;
  if (verdict === null) await ask(at(id, "verdicts", { head, tail }), { method: "DELETE" });
  else await ask(at(id, "verdicts"), { method: "POST", body: { head, tail, verdict } });
  await refresh(id);
  if (state.head !== null) await predict(state.head, keep);
}

// The evidence as a picture: a row for each rule between head and tail, below them the facts that the tail shares with
// reference tails. Every label has its own part of a row, so that none covers another.

const LEFT = 60, RIGHT = 580, WIDTH = 640, BEND = 36, GAP = 16;
const MAX_RULES = 5, MAX_SHARED = 4, MAX_LINES = 3;
const SIZES = { "": 13, name: 11, end: 14 }; // font sizes of CSS classes
const LINE_HEIGHT = 1.3; // of font sizes

const roleOf = (piece) => (!piece.for ? "against" : piece.support ? "for" : "unsupported");
const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(2)}`;

function shownOf(pieces, most) { // the first ones, the strongest against the answer among them
  const against = pieces.filter((piece) => !piece.for);
  const first = pieces.filter((piece) => piece.for).slice(0, most - Math.min(1, against.length));
  return [...first, ...against.slice(0, most - first.length)];
}

const pencil = document.createElement("canvas").getContext("2d");
function widthOf(text, kind) {
  pencil.font = `${kind === "end" ? 700 : 400} ${SIZES[kind]}px system-ui, sans-serif`; // as in page.css
  return pencil.measureText(text).width;
}

function wrap(text, width, kind) { // lines, broken behind spaces and punctuation if possible
  const lines = [];
  let line = "";
  for (const part of text.match(/[^\s_/:;,.|-]+[\s_/:;,.|-]*|[\s_/:;,.|-]+/gu) ?? []) {
    if (widthOf(line + part.trimEnd(), kind) > width) { lines.push(line); line = ""; }
    if (widthOf(part, kind) <= width) { line += part; continue; }
    for (const character of part) {
      if (widthOf(line + character, kind) > width) { lines.push(line); line = ""; }
      line += character;
    }
  }
  return [...lines, line].map((found) => found.trim()).filter(Boolean);
}

function labelled(text, width, kind = "") { // wrapped; where that takes too many lines, without its middle
  const [main] = kind.split(" ");
  const characters = [...text];
  let lines = wrap(text, width, main);
  let kept = Math.min(characters.length, Math.ceil(characters.length * MAX_LINES * width / widthOf(text, main)));
  const shortened = lines.length > MAX_LINES;
  while (lines.length > MAX_LINES) {
    const rear = Math.floor(kept / 2);
    lines = wrap(`${characters.slice(0, kept - rear).join("")}…${characters.slice(characters.length - rear).join("")}`, width, main);
    kept -= 1;
  }
  const size = SIZES[main];
  const drawn = (x, top, anchor) => lines.map((line, number) => {
    const element = draw("text", { x, y: top + size * (LINE_HEIGHT * number + 1), class: kind, "text-anchor": anchor }, line);
    if (shortened) element.append(draw("title", {}, text));
    return element;
  });
  return { height: lines.length * LINE_HEIGHT * size, drawn };
}

function picture(found) {
  const asked = `${labelOf(found.head)} → ${labelOf(found.tail)}`;
  const svg = draw("svg", { role: "img", "aria-label": `Evidence for and against ${asked}: ${found.sentence}` });
  const lines = draw("g", {}), marks = draw("g", {});
  svg.append(lines, marks);
  const write = (label, x, top, anchor = "middle") => marks.append(...label.drawn(x, top, anchor));
  const dot = (x, y, kind, radius) => marks.append(draw("circle", { cx: x, cy: y, r: radius, class: kind }));
  const line = (kind, ...points) => lines.append(draw("polyline", { points: points.join(" "), class: kind }));
  const tallest = (labels) => Math.max(0, ...labels.map((label) => label.height));

  const width = WIDTH / 3 - 12;
  const heading = [labelled(labelOf(found.head), width, "end"), labelled(found.relation, width, "name"), labelled(labelOf(found.tail), width, "end")];
  const poles = 2 * GAP + tallest(heading);
  [[8, "start"], [WIDTH / 2, "middle"], [WIDTH - 8, "end"]].forEach(([x, anchor], place) => write(heading[place], x, poles - GAP - heading[place].height, anchor));
  line("asked", [LEFT, poles], [RIGHT, poles]);
  dot(LEFT, poles, "pole", 9);
  dot(RIGHT, poles, "pole", 9);

  let top = poles + GAP;
  for (const rule of shownOf(found.rules, MAX_RULES)) {
    const role = roleOf(rule);
    const start = LEFT + BEND, step = (RIGHT - LEFT - 2 * BEND) / rule.kinds.length;
    const over = rule.kinds.map((kind) => labelled(kind, step - 8, "name"));
    const under = rule.paths[0].slice(1, -1).map((entity) => labelled(labelOf(entity), step - 8));
    const y = top + tallest(over) + 4;
    line(role, [LEFT, poles], [start, y], [RIGHT - BEND, y], [RIGHT, poles]);
    over.forEach((label, place) => write(label, start + step * (place + 0.5), y - 4 - label.height));
    under.forEach((label, place) => { dot(start + step * (place + 1), y, role, 5); write(label, start + step * (place + 1), y + 8); });
    const more = rule.paths.length > 1 ? `; ${rule.paths.length} such paths` : "";
    const words = labelled(`${signed(rule.weight)}: ${rule.words}${more}`, RIGHT - LEFT - 2 * BEND, `name ${role}`);
    top = y + 8 + tallest(under);
    write(words, WIDTH / 2, top);
    top += words.height + GAP;
  }
  if (!found.rules.length) {
    const none = labelled("no path speaks for or against it", RIGHT - LEFT, "name");
    write(none, WIDTH / 2, top);
    top += none.height + GAP;
  }

  shownOf(found.shared, MAX_SHARED).forEach((fact, number) => {
    const role = roleOf(fact);
    const x = RIGHT - 20, aside = RIGHT + 20 + 8 * number; // each line beside the others
    const labels = [labelled(fact.relation, x - 32, "name"), labelled(labelOf(fact.entity), x - 32), labelled(`${signed(fact.weight)}: ${fact.words}`, x - 32, `name ${role}`)];
    const y = top + labels[0].height + labels[1].height / 2;
    line(role, [RIGHT, poles], [aside, poles + GAP], [aside, y], [x, y]);
    dot(x, y, role, 5);
    for (const label of labels) { write(label, x - 14, top, "end"); top += label.height; }
    top += GAP;
  });

  const { similar } = found;
  const alike = labelled(`the most similar reference: ${labelOf(similar.head)} → ${labelOf(similar.tail)}`, WIDTH - 16, "name");
  write(alike, WIDTH / 2, top);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${top + alike.height + GAP}`);
  return svg;
}

// Export

async function exportFacts(format, ending) {
  const facts = await ask(at(state.relation.id, "facts", { format }), { text: true });
  const address = URL.createObjectURL(new Blob([facts], { type: "text/plain" }));
  const link = make("a", { href: address, download: `${state.relation.name.replace(/[^\w.-]+/g, "_")}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  say(`${state.relation.accepted.length} accepted facts exported`);
}

// Keys

function onKey(event) {
  const typing = event.target.matches("input:not([type=checkbox])");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("token-dialog").open) return;
  if (event.key === "/" && state.relation) { event.preventDefault(); $("head").focus(); $("head").select(); return; }
  if (event.key === "u" && state.lastVerdict && state.lastVerdict.relation === state.relation?.id) { told(undo)(); return; }
  if (!state.answers.length) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    told(choose)(Math.min(state.answers.length - 1, Math.max(0, state.chosen + step)));
  }
  const verdict = { a: "accepted", r: "rejected" }[event.key];
  if (verdict && state.chosen >= 0) { event.preventDefault(); told(judgeAnswer)(state.chosen, verdict); }
}

// Start

$("problem-close").addEventListener("click", () => { $("problem").hidden = true; });
$("add-pair").addEventListener("click", told(async () => addPair()));
$("import").addEventListener("change", told(async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  try { await importPairs(file); } finally { event.target.value = ""; }
}));
$("teach").addEventListener("submit", told(async (event) => {
  event.preventDefault();
  if ($("new-head").value.trim() || $("new-tail").value.trim()) addPair();
  if (!state.newPairs.length) throw problem("A relation needs at least one reference.", "Add a pair, or load pairs from a file.");
  await teach($("name").value.trim() || "relation", state.newPairs);
  state.newPairs = [];
  $("name").value = "";
  showNewPairs();
}));
$("ask").addEventListener("submit", told(async (event) => {
  event.preventDefault();
  const head = $("head").value.trim();
  if (!head) throw problem("No head given.", "Enter an entity first.");
  await predict(head);
}));
$("known").addEventListener("change", told(async () => { if (state.head !== null) await predict(state.head); }));
$("export-tsv").addEventListener("click", told(() => exportFacts("tsv", "tsv")));
$("export-ntriples").addEventListener("click", told(() => exportFacts("ntriples", "nt")));
$("delete").addEventListener("click", told(async () => {
  const { id, name } = state.relation;
  if (!window.confirm(`Delete ${name}, its references and its verdicts?`)) return;
  await ask(at(id), { method: "DELETE" });
  clearAnswers();
  await refresh(null);
  say(`${name} deleted`);
}));
document.addEventListener("keydown", onKey);
offerEntities($("new-head"), () => $("new-tail").focus());
offerEntities($("new-tail"), () => $("add-pair").focus());
offerEntities($("head"), told(async (entity) => predict(entity)));

told(async () => {
  const about = await ask("api/about");
  $("about").textContent = `${about.dataset}, ${about.entities.toLocaleString("en")} entities. Teach a relation from a few examples, predict missing facts, and see the evidence.`;
  const chosen = location.hash.slice(1);
  await showExamples();
  const relations = await refresh(chosen);
  const known = relations.find((relation) => relation.id === chosen);
  if (known) await open(known);
})();
