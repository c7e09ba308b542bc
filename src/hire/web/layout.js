// Where the nodes of a small graph go: linked ones near each other, all apart, deterministic.

const STEPS = 160;
const LINK = 92; // the length an edge would like to have
const APART = 2600; // how strongly nodes push one another away
const FLAT = 1.9; // labels are wide: nodes need more room beside them than above

// Moves all nodes but fixed ones; a node is {x, y, fixed}, an edge has `from` and `to`, both nodes.
export function arrange(nodes, edges, width, height, margin) {
  for (let step = 0; step < STEPS; step += 1) {
    const cooling = 1 - step / STEPS;
    const moves = nodes.map(() => [0, 0]);
    const places = new Map(nodes.map((node, place) => [node, place]));
    for (let one = 0; one < nodes.length; one += 1) {
      for (let other = one + 1; other < nodes.length; other += 1) push(nodes[one], nodes[other], moves[one], moves[other]);
    }
    for (const { from, to } of edges) pull(from, to, moves[places.get(from)], moves[places.get(to)]);
    nodes.forEach((node, place) => {
      if (node.fixed) return;
      const [x, y] = moves[place].map((move) => Math.max(-24, Math.min(24, move)) * cooling);
      node.x = within(node.x + x, margin, width - margin);
      node.y = within(node.y + y, margin / 2, height - margin / 2);
    });
  }
}

const within = (value, low, high) => Math.max(low, Math.min(high, value));

function push(one, other, moveOne, moveOther) {
  const x = (one.x - other.x) / FLAT || 0.1;
  const y = one.y - other.y || 0.1;
  const strength = APART / (x * x + y * y);
  const distance = Math.hypot(x, y);
  for (const [axis, way] of [[0, x], [1, y]]) {
    moveOne[axis] += (way / distance) * strength * 0.1;
    moveOther[axis] -= (way / distance) * strength * 0.1;
  }
}

function pull(from, to, moveFrom, moveTo) {
  const x = to.x - from.x;
  const y = to.y - from.y;
  const distance = Math.hypot(x, y) || 1;
  const strength = (distance - LINK) * 0.06;
  for (const [axis, way] of [[0, x], [1, y]]) {
    moveFrom[axis] += (way / distance) * strength;
    moveTo[axis] -= (way / distance) * strength;
  }
}
