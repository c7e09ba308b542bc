// What lies around a pair, as a graph that grows: a click on an entity shows its neighbours.

import { button, draw, label, make, say, shortened } from "./dom.js";
import { arrange } from "./layout.js";
import { beside } from "./problems.js";

const WIDTH = 400,
  HEIGHT = 320,
  MARGIN = 44;
const ROWS = [-68, 58, -118, 98]; // of the paths, above and below the pair
const LETTER = { pole: 7.9, "": 7.2, "edge-name": 5.4 }; // about as wide as a letter of a label
const MAX_LETTERS = 20;
const MAX_NODES = 60;
const MAX_LABELLED = 9; // edges; of more, only those of the selected entity have their names
const GOLDEN_ANGLE = 2.4;
const BEND = 38; // between edges of the same two nodes

const short = (text) => shortened(text, MAX_LETTERS);

const apart = (one, other) => one[0] >= other[2] || other[0] >= one[2] || one[1] >= other[3] || other[1] >= one[3];

export class GraphView {
  // `neighbors(entity)` gives [{relation, direction, entity}] as the service does; `open(entity)` shows an entity.
  constructor({ neighbors, open }) {
    Object.assign(this, { neighbors, open, nodes: new Map(), edges: [], selected: null });
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Neighbourhood" });
    this.caption = make("p", { class: "caption quiet" });
    this.element = make(
      "section",
      { class: "graph panel", "aria-label": "Neighbourhood of the pair" },
      this.svg,
      this.caption,
    );
    this.expand = beside(this.caption, (node) => this.#expand(node));
  }

  // A pair at both ends, and the paths of its reasons between them: [{entities, kinds, role}].
  show(head, tail, paths, nameOf) {
    Object.assign(this, { nodes: new Map(), edges: [], selected: null });
    this.#add(head, nameOf(head), { x: MARGIN, y: HEIGHT / 2, fixed: true, role: "pole" });
    this.#add(tail, nameOf(tail), { x: WIDTH - MARGIN, y: HEIGHT / 2, fixed: true, role: "pole" });
    paths.forEach(({ entities, kinds, role }, row) => {
      const nodes = entities.map((entity, place) => {
        const x = MARGIN + ((WIDTH - 2 * MARGIN) * place) / (entities.length - 1);
        return this.#add(entity, nameOf(entity), { x, y: HEIGHT / 2 + ROWS[row % ROWS.length] + 12 * place });
      });
      kinds.forEach((kind, place) => this.#link(nodes[place], nodes[place + 1], kind, role));
    });
    this.caption.replaceChildren("Click an entity to see its neighbours.");
    this.#paint();
  }

  #add(entity, name, place) {
    if (!this.nodes.has(entity))
      this.nodes.set(entity, { entity, name, fixed: false, role: "", expanded: false, ...place });
    return this.nodes.get(entity);
  }

  #link(from, to, relation, role = "") {
    const between = this.edges.filter(
      (edge) => [edge.from, edge.to].includes(from) && [edge.from, edge.to].includes(to),
    );
    if (from === to || between.some((edge) => edge.from === from && edge.relation === relation)) return;
    const bend = BEND * Math.ceil(between.length / 2) * (between.length % 2 ? 1 : -1);
    this.edges.push({ from, to, relation, role, bend });
  }

  async #expand(node) {
    this.selected = node;
    if (!node.expanded) {
      const found = await this.neighbors(node.entity);
      if (this.nodes.get(node.entity) !== node) return; // another pair is shown by now
      node.expanded = true;
      found.forEach((fact) => this.#addNeighbor(node, fact));
      arrange([...this.nodes.values()], this.edges, WIDTH, HEIGHT, MARGIN);
      say(`${found.length} neighbours of ${node.name}`);
    }
    const details = button("details", () => this.open(node.entity), { class: "link" });
    this.caption.replaceChildren(label(node.name), ": ", details);
    this.#paint(node);
  }

  #addNeighbor(node, { relation, direction, entity }) {
    if (this.nodes.size >= MAX_NODES && !this.nodes.has(entity.id)) return;
    const angle = GOLDEN_ANGLE * this.nodes.size;
    const near = { x: node.x + 40 * Math.cos(angle), y: node.y + 40 * Math.sin(angle) };
    const other = this.#add(entity.id, entity.label, near);
    if (direction === "out") this.#link(node, other, relation);
    else this.#link(other, node, relation);
  }

  #paint(focused = null) {
    const nodes = [...this.nodes.values()];
    const first = focused ?? nodes[0]; // one tab stop for the whole graph
    this.taken = nodes.map(({ x, y }) => [x - 8, y - 8, x + 8, y + 8]);
    const circles = nodes.map((node) => this.#circle(node, node === first));
    this.svg.replaceChildren(...this.edges.flatMap((edge) => this.#line(edge)), ...circles);
    if (focused) this.svg.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  // A label at the first of some places where it covers no other and stays in the picture, or none.
  #text(words, kind, places) {
    const half = (LETTER[kind] * words.length) / 2 + 4;
    for (const [wanted, y] of places) {
      const x = Math.max(half, Math.min(WIDTH - half, wanted));
      const box = [x - half, y - 11, x + half, y + 3];
      if (!this.taken.every((other) => apart(box, other))) continue;
      this.taken.push(box);
      return [draw("text", { x, y, class: kind }, words)];
    }
    return [];
  }

  // Bent, so that several edges of two nodes do not cover one another.
  #line({ from, to, relation, role, bend }) {
    const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2 + bend];
    const d = `M${from.x} ${from.y}Q${x} ${y} ${to.x} ${to.y}`;
    const line = draw("path", { d, class: `edge ${role}` }, draw("title", {}, relation));
    const named = this.edges.length <= MAX_LABELLED || from === this.selected || to === this.selected;
    if (!named) return [line];
    const places = [0.5, 0.35, 0.65, 0.2, 0.8].map((t) =>
      ["x", "y"].map((axis) => (1 - t) ** 2 * from[axis] + 2 * t * (1 - t) * { x, y }[axis] + t ** 2 * to[axis]),
    );
    return [line, ...this.#text(short(relation), "edge-name", places)];
  }

  #circle(node, reachable) {
    const { x, y, role, name } = node;
    const attributes = {
      role: "button",
      tabindex: reachable ? 0 : -1,
      class: `node ${role}${node === this.selected ? " selected" : ""}`,
      "aria-label": `${name}, show neighbours`,
      onclick: () => this.expand(node),
      onkeydown: (event) => this.#onKey(event, node),
    };
    return draw(
      "g",
      attributes,
      draw("circle", { cx: x, cy: y, r: 22, class: "reach" }),
      draw("circle", { cx: x, cy: y, r: role ? 9 : 6 }),
      ...this.#text(short(name), role, [
        [x, y + 21],
        [x, y - 12],
      ]),
      draw("title", {}, name),
    );
  }

  // Arrows go from node to node.
  #onKey(event, node) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step && event.key !== "Enter") return;
    event.preventDefault();
    if (!step) {
      this.expand(node);
      return;
    }
    const all = [...this.svg.querySelectorAll(".node")];
    const next = all[(all.indexOf(event.currentTarget) + step + all.length) % all.length];
    event.currentTarget.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
}
