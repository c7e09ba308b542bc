"""What it costs that keys have the ranks of (head, relation) pairs, as they must in the largest graphs.

python benchmarks/keys.py
python benchmarks/keys.py --facts 1000000

Facts are drawn at random, 8 for each entity, of 2,000 relations with Zipf-like frequencies, and come in any order.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from hire.data.facts import Facts
from hire.util import keys
from hire.util.arrays import IntArray

RELATIONS = 2_000
QUESTIONS = 100_000


def triples_at_random(count: int, entities: int) -> IntArray:
    """Triples [count, 3]."""
    generator = np.random.default_rng(0)
    relations = np.minimum(generator.zipf(1.5, count), RELATIONS) - 1
    heads, tails = generator.integers(0, entities, (2, count), dtype=np.int32)
    return np.stack([heads, relations.astype(np.int32), tails], axis=1)


def measure(triples: IntArray, entities: int) -> str:
    """The processor time of a fact that is numbered, of one that is looked up, and of the tails of a head."""
    asked = triples[np.random.default_rng(1).integers(0, len(triples), QUESTIONS)]
    times = [time.process_time()]
    facts = Facts.of(triples, entities, RELATIONS)
    times.append(time.process_time())
    facts.contain(*asked.T)
    times.append(time.process_time())
    facts.all_tails(*asked.T[:2])
    times.append(time.process_time())
    numbering, known, tails = np.diff(times) / [len(triples), QUESTIONS, QUESTIONS] * 1e9
    pairs = "" if facts.pairs is None else f" and {len(facts.pairs):,} pairs"
    return (
        f"{len(facts.keys):,} facts{pairs}: numbering {numbering:.0f} ns a fact, "
        f"is a fact known {known:.0f} ns, tails of a head {tails:.0f} ns"
    )


def main() -> None:
    """Print what is measured in both forms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, default=30_000_000)
    count = parser.parse_args().facts
    entities = max(1, count // 8)
    triples = triples_at_random(count, entities)
    print("plain:", measure(triples, entities), flush=True)
    keys.PLAIN = 0
    print("ranked:", measure(triples, entities))


if __name__ == "__main__":
    main()
