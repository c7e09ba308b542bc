// Where the nodes of a small graph go: linked ones near each other, all of them apart, the same every time.

const STEPS = 150;
const FLAT = 1.7; // labels are wide: nodes need more room beside them than above
const HOTTEST = 30; // how far a node moves in the first step

// Moves all nodes but fixed ones (Fruchterman and Reingold); a node is {x, y, fixed}, an edge has `from` and `to`.
export function arrange(nodes, edges, width, height, margin) {
  const roomy = Math.max(0.6, 1.05 - 0.03 * nodes.length);
  const ideal = roomy * Math.sqrt(((width / FLAT) * height) / nodes.length);
  const places = new Map(nodes.map((node, place) => [node, place]));
  for (let step = 0; step < STEPS; step += 1) {
    const moves = nodes.map(() => [0, 0]);
    for (let one = 0; one < nodes.length; one += 1) {
      for (let other = one + 1; other < nodes.length; other += 1) {
        pull(nodes[one], nodes[other], moves[one], moves[other], (distance) => (-ideal * ideal) / distance);
      }
    }
    for (const { from, to } of edges)
      pull(from, to, moves[places.get(from)], moves[places.get(to)], (distance) => (distance * distance) / ideal);
    const heat = HOTTEST * (1 - step / STEPS);
    nodes.forEach((node, place) => {
      if (node.fixed) return;
      const [x, y] = moves[place];
      const length = Math.hypot(x, y) || 1;
      node.x = within(node.x + FLAT * (x / length) * Math.min(length, heat), margin, width - margin);
      node.y = within(node.y + (y / length) * Math.min(length, heat), margin / 3, height - margin / 2);
    });
  }
}

const within = (value, low, high) => Math.max(low, Math.min(high, value));

function pull(one, other, moveOne, moveOther, strength) {
  const x = (other.x - one.x) / FLAT || 0.1;
  const y = other.y - one.y || 0.1;
  const distance = Math.hypot(x, y);
  const force = strength(distance) / distance;
  moveOne[0] += force * x;
  moveOne[1] += force * y;
  moveOther[0] -= force * x;
  moveOther[1] -= force * y;
}
