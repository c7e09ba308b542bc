// What lies around a pair, as a graph that grows: a click on an entity shows its neighbours.

import { arrange } from "./layout.js";
import { button, draw, label, make, say } from "./dom.js";

const WIDTH = 400, HEIGHT = 320, MARGIN = 44;
const LETTER = { pole: 7.9, "": 6.6 }; // about as wide as a letter of a label
const ROWS = [-68, 62, -122, 116]; // of the paths, above and below the pair
const MAX_NODES = 60;
const MAX_LABELLED = 9; // edges; of more, only those of the selected entity have their names
const GOLDEN_ANGLE = 2.4;
const MAX_LETTERS = 20;

const short = (text) => (text.length > MAX_LETTERS ? `${text.slice(0, MAX_LETTERS - 1)}…` : text);

// `neighbours(entity)` gives [{relation, outgoing, entity, label}]; `open(entity)` shows an entity.
export function graphView({ neighbours, open }) {
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Neighbourhood" });
  const caption = make("p", { class: "caption quiet" });
  const element = make("section", { class: "graph panel", "aria-label": "Neighbourhood of the pair" }, svg, caption);
  let nodes = new Map();
  let edges = [];
  let selected = null;

  function add(entity, name, near = null) {
    if (!nodes.has(entity)) {
      const angle = GOLDEN_ANGLE * nodes.size;
      const [x, y] = near ? [near.x + 40 * Math.cos(angle), near.y + 40 * Math.sin(angle)] : [WIDTH / 2, HEIGHT / 2];
      nodes.set(entity, { entity, name, x, y, fixed: false, role: "", expanded: false });
    }
    return nodes.get(entity);
  }

  function link(from, to, relation, role = "") {
    const beside = edges.filter((edge) => [edge.from, edge.to].includes(from) && [edge.from, edge.to].includes(to));
    if (from === to || beside.some((edge) => edge.from === from && edge.relation === relation)) return;
    edges.push({ from, to, relation, role, bend: 26 * Math.ceil(beside.length / 2) * (beside.length % 2 ? 1 : -1) });
  }

  // A pair at both ends, and the paths of its reasons between them: [{entities, kinds, role}].
  function show(head, tail, paths, names) {
    nodes = new Map();
    edges = [];
    selected = null;
    const poles = [[head, MARGIN], [tail, WIDTH - MARGIN]];
    for (const [entity, x] of poles) Object.assign(add(entity, names(entity)), { x, y: HEIGHT / 2, fixed: true, role: "pole" });
    paths.forEach(({ entities, kinds, role }, row) => entities.forEach((entity, place) => {
      const x = MARGIN + ((WIDTH - 2 * MARGIN) * place) / Math.max(1, entities.length - 1);
      const y = HEIGHT / 2 + ROWS[row % ROWS.length] + 12 * place;
      const node = nodes.get(entity) ?? Object.assign(add(entity, names(entity)), { x, y });
      if (place > 0) link(nodes.get(entities[place - 1]), node, kinds[place - 1], role);
    }));
    caption.replaceChildren("Click an entity to see its neighbours.");
    paint();
  }

  async function expand(node) {
    selected = node;
    if (!node.expanded) {
      const found = await neighbours(node.entity);
      if (nodes.get(node.entity) !== node) return; // another pair is shown by now
      node.expanded = true;
      for (const fact of found) {
        if (nodes.size >= MAX_NODES && !nodes.has(fact.entity)) continue;
        const other = add(fact.entity, fact.label, node);
        if (fact.outgoing) link(node, other, fact.relation);
        else link(other, node, fact.relation);
      }
      say(`${found.length} neighbours of ${node.name}`);
    }
    caption.replaceChildren(label(node.name), ": ", button("details", () => open(node.entity), { class: "link" }));
    arrange([...nodes.values()], edges, WIDTH, HEIGHT, MARGIN);
    paint(node);
  }

  function paint(focused = null) {
    const all = [...nodes.values()];
    const first = focused ?? all[0];
    const named = (edge) => edges.length <= MAX_LABELLED || edge.from === selected || edge.to === selected;
    svg.replaceChildren(...edges.flatMap((edge) => line(edge, named(edge))), ...all.map((node) => circle(node, node === first)));
    if (focused) svg.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  function line({ from, to, relation, role, bend }, named) { // bent, so that several edges of a pair do not cover one another
    const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2 + bend];
    const drawn = draw("path", { d: `M${from.x} ${from.y}Q${x} ${y} ${to.x} ${to.y}`, class: `edge ${role}` }, draw("title", {}, relation));
    return named ? [drawn, draw("text", { x, y: y - bend / 2 - 4, class: "edge-name" }, short(relation))] : [drawn];
  }

  function circle(node, reachable) {
    const attributes = { role: "button", tabindex: reachable ? 0 : -1, class: `node ${node.role}${node === selected ? " selected" : ""}`, "aria-label": `${node.name}, show neighbours` };
    return draw("g", { ...attributes, onclick: () => expand(node), onkeydown: (event) => onKey(event, node) },
      draw("circle", { cx: node.x, cy: node.y, r: 22, class: "reach" }),
      draw("circle", { cx: node.x, cy: node.y, r: node.role ? 9 : 6 }),
      name(node), draw("title", {}, node.name));
  }

  function name({ x, y, role, name: text }) { // below the node, within the picture
    const half = (LETTER[role] * short(text).length) / 2 + 4;
    return draw("text", { x: Math.max(half, Math.min(WIDTH - half, x)), y: y + 21 }, short(text));
  }

  function onKey(event, node) { // one tab stop for the whole graph, arrows go from node to node
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") {
      event.preventDefault();
      expand(node);
    } else if (step) {
      event.preventDefault();
      const all = [...svg.querySelectorAll(".node")];
      const next = all[(all.indexOf(event.currentTarget) + step + all.length) % all.length];
      event.currentTarget.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    }
  }

  return { element, show };
}
