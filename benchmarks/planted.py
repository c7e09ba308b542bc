"""A made-up graph of any size with planted rules, by default as large as Wiki-One, and what a perfect reasoner reaches.

    python benchmarks/planted.py build/planted --entities 4838244
    hire data build build/planted/graph.tsv --types build/planted/types.tsv --split 133:16:34 -o build/planted/dataset
    python benchmarks/planted.py build/planted --judge build/planted/dataset

Every entity has a type and is the head of a fact at least once. A background relation leads from a class of entities
to the entities of one type, which are the more often its tails the more popular they are, by Zipf's law; some of its
facts are noise. A task follows from a rule: q(h, t) <- r(h, t), or r(t, h), or r(h, x) and s(x, t). Some of its facts
are noise, too, whose tails have the right type alone. A perfect reasoner knows the rule of each task and how popular
its tails are.

Nothing depends on anything but the size and the seed. A relation is made from its own random numbers when it is written
or looked at, so that memory is needed for a few of them, whatever the size of the graph.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import gcd
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from hire.data.open import open_dataset
from hire.util.arrays import distinct

WIKI_ENTITIES, WIKI_FACTS, WIKI_RELATIONS = 4_838_244, 5_859_240, 822
WIKI_TASKS = 133 + 16 + 34
FACTS_PER_ENTITY = WIKI_FACTS / WIKI_ENTITIES
SKEW = 0.9  # Zipf's exponent of how often an entity is a tail
NOISE = 0.05  # share of a background relation's facts
TASK_NOISE = 0.2  # share of a task's facts
TASK_FACTS = (60, 450)  # at least and at most: hire data build takes relations of 51 to 499 facts as tasks
MOST_ANSWERS = 10  # that a rule gives the head of a task's fact
ATTEMPTS = 50  # to find a rule that concludes enough
KINDS = ("link", "inverse", "two hops")
ROWS_AT_ONCE = 1 << 18

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rule:
    """What a task follows from, and what a perfect reasoner can make of it."""

    task: str
    kind: str  # one of KINDS
    relations: list[str]
    facts: int
    noise: int  # facts that do not follow from the rule
    mrr: float  # expected of a perfect reasoner, over all facts


class Planted:
    """A graph that is made relation by relation."""

    def __init__(self, entities: int = WIKI_ENTITIES, seed: int = 0) -> None:
        self.entities, self.seed = entities, seed
        self.facts = round(entities * FACTS_PER_ENTITY)
        self.tasks = int(np.clip(WIKI_TASKS * entities // 500_000, 11, WIKI_TASKS))
        self.relations = int(np.clip(self.facts // 2_500, 4, WIKI_RELATIONS - WIKI_TASKS))  # of the background
        self.classes = int(np.clip(self.relations // 16, 1, 40))
        types = int(np.clip(entities // 8_000, 8, 6_000))
        generator = _stream(seed, 0)
        # Entities lie in the order of their types, and the types in the order of their classes.
        self.class_starts = np.linspace(0, entities, self.classes + 1).astype(np.int64)
        shares = np.cumsum(1 / np.arange(1, types // self.classes + 2) ** 0.7)
        inner = [start + (end - start) * shares / shares[-1] for start, end in self._class_ranges()]
        self.type_starts = np.unique(np.concatenate([[0], *inner]).astype(np.int64))
        self.head_class = np.arange(self.relations) % self.classes
        self.tail_type = generator.integers(0, len(self.type_starts) - 1, self.relations)
        extra = self.facts - entities - self.tasks * 200  # a task has about 200 facts
        sizes = 1 / (1 + generator.permutation(self.relations)) ** 0.8
        self.extra = (max(extra, 0) * sizes / sizes.sum()).astype(np.int64)
        # Names in another order: multiplying by a number without a common divisor is a permutation.
        self.factor = next(f for f in range(int(entities * 0.618) | 1, 2 * entities + 3, 2) if gcd(f, entities) == 1)
        self.pairs = lru_cache(maxsize=2)(self._pairs)

    def _class_ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.class_starts[:-1].tolist(), self.class_starts[1:].tolist(), strict=True))

    def name(self, entities: Ints) -> Ints:
        """The number in each entity's name."""
        return (entities * self.factor) % self.entities

    def type_of(self, entities: Ints) -> Ints:
        """The type of each entity."""
        return np.searchsorted(self.type_starts, entities, side="right") - 1

    def _tails(self, generator: np.random.Generator, of_type: int, count: int) -> Ints:
        """Entities of a type, the first ones more often, by Zipf's law."""
        start, size = self.type_starts[of_type], np.diff(self.type_starts)[of_type]
        rest = 1 - SKEW
        ranks = (1 + generator.random(count) * ((size + 1) ** rest - 1)) ** (1 / rest) - 1
        return np.asarray(start + np.minimum(ranks.astype(np.int64), size - 1))

    def _pairs(self, relation: int) -> Ints:
        """The distinct facts of a background relation, [n, 2], sorted by head."""
        generator = _stream(self.seed, 1, relation)
        start, end = self._class_ranges()[self.head_class[relation]]
        of_class = np.flatnonzero(self.head_class == self.head_class[relation])
        shares = np.cumsum(1 / np.arange(1, len(of_class) + 1))
        # The same numbers for all relations of a class: each entity is a head of one of them, at least.
        drawn = _stream(self.seed, 2, int(self.head_class[relation])).random(end - start)
        place = np.searchsorted(shares / shares[-1], drawn)
        heads = start + np.flatnonzero(of_class[np.minimum(place, len(of_class) - 1)] == relation)
        heads = np.concatenate([heads, generator.integers(start, end, self.extra[relation])])
        tails = self._tails(generator, int(self.tail_type[relation]), len(heads))
        wrong = generator.random(len(heads)) < NOISE
        tails[wrong] = generator.integers(0, self.entities, int(wrong.sum()))
        return self._distinct(heads, tails)

    def _distinct(self, heads: Ints, tails: Ints) -> Ints:
        """Each pair once, [n, 2], sorted."""
        return np.column_stack(np.divmod(distinct(heads * self.entities + tails), self.entities))

    def rule_of(self, task: int) -> tuple[Rule, Ints]:
        """The rule of a task, and its facts [n, 2]."""
        generator = _stream(self.seed, 3, task)
        size = int(np.exp(generator.uniform(*np.log(TASK_FACTS))))
        for _ in range(ATTEMPTS):
            kind, used, conclusions = self._conclusions(generator, size, KINDS[task % len(KINDS)])
            types = self.type_of(conclusions[:, 1])
            usual = int(np.bincount(types).argmax())
            conclusions = conclusions[types == usual]
            answers = np.bincount(np.unique(conclusions[:, 0], return_inverse=True)[1])
            clear = np.flatnonzero(np.repeat(answers, answers) <= MOST_ANSWERS)
            if len(clear) >= size:
                break
        pairs = conclusions[generator.choice(clear, min(size, len(clear)), replace=False)]
        noise = np.flatnonzero(generator.random(len(pairs)) < TASK_NOISE)
        pairs[noise, 1] = self._tails(generator, usual, len(noise))
        pairs = self._distinct(*pairs.T)
        generator.shuffle(pairs)  # the first ones are the references
        mrr, wrong = self._perfect(conclusions, pairs, int(self.type_starts[usual]))
        return Rule(f"T{task}", kind, [f"P{r}" for r in used], len(pairs), wrong, mrr), pairs

    def _conclusions(self, generator: np.random.Generator, size: int, kind: str) -> tuple[str, list[int], Ints]:
        """A rule that concludes at least twice as many facts as are wanted, and these facts, distinct and sorted."""
        first = int(generator.integers(self.relations))
        if kind == "two hops":
            of_type = np.searchsorted(self.class_starts, self.type_starts[self.tail_type[first]], side="right") - 1
            for second in generator.permutation(np.flatnonzero(self.head_class == of_type))[:8].tolist():
                found = self._joined(self.pairs(first), self.pairs(second))
                if len(found) >= 2 * size:
                    return kind, [first, second], found
            kind = "link"
        pairs = self.pairs(first)
        return kind, [first], pairs if kind == "link" else pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))][:, ::-1]

    def _joined(self, first: Ints, second: Ints) -> Ints:
        """The pairs of a head of the first relation and a tail of the second, over an entity between them."""
        starts, stops = (np.searchsorted(second[:, 0], first[:, 1], side) for side in ("left", "right"))
        lengths = stops - starts
        owners = np.repeat(np.arange(len(first)), lengths)
        positions = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
        return self._distinct(first[owners, 0], second[positions, 1])

    def _perfect(self, conclusions: Ints, pairs: Ints, first: int) -> tuple[float, int]:
        """The expected MRR of whoever knows the rule and the popularity of tails, and the number of noisy facts.

        The other known tails of a head are no candidates. Conclusions of the rule are all equally likely.
        """
        keys = conclusions[:, 0] * self.entities + conclusions[:, 1]
        follows = np.isin(pairs[:, 0] * self.entities + pairs[:, 1], keys)
        concluded = np.searchsorted(conclusions[:, 0], pairs[:, 0], "right") - np.searchsorted(
            conclusions[:, 0], pairs[:, 0]
        )
        of_head, positions = np.unique(pairs[:, 0], return_inverse=True)
        known = np.bincount(positions[follows], minlength=len(of_head))[positions]
        left = concluded - known  # besides the query's own tail, if it follows
        harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, left.max() + 2))])
        ranks = 1 + left + (pairs[:, 1] - first)  # of noise: behind the conclusions, by popularity
        return float(np.where(follows, harmonic[left + 1] / (left + 1), 1 / ranks).mean()), int((~follows).sum())

    def write(self, folder: Path) -> None:
        """Write graph.tsv, types.tsv and rules.json; what is complete already is not written again."""
        if (folder / "rules.json").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "types.tsv").open("w") as stream:
            for start in range(0, self.entities, ROWS_AT_ONCE):
                some = np.arange(start, min(start + ROWS_AT_ONCE, self.entities))
                rows = zip(self.name(some).tolist(), self.type_of(some).tolist(), strict=True)
                stream.writelines(f"Q{entity}\ttype{of}\n" for entity, of in rows)
        rules = []
        with (folder / "graph.tsv").open("w") as stream:
            for relation in range(self.relations):
                self._write_facts(stream, f"P{relation}", self._pairs(relation))
            for task in range(self.tasks):
                rule, pairs = self.rule_of(task)
                rules.append(asdict(rule))
                self._write_facts(stream, rule.task, pairs)
        about = {"entities": self.entities, "seed": self.seed, "rules": rules}
        (folder / "rules.json").write_text(json.dumps(about, indent=1) + "\n")

    def _write_facts(self, stream: TextIO, relation: str, pairs: Ints) -> None:
        for start in range(0, len(pairs), ROWS_AT_ONCE):
            heads, tails = (self.name(part).tolist() for part in pairs[start : start + ROWS_AT_ONCE].T)
            stream.writelines(f"Q{h}\t{relation}\tQ{t}\n" for h, t in zip(heads, tails, strict=True))


def _stream(seed: int, purpose: int, number: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, purpose, number])


def judge(folder: Path, dataset: str, split: str, shots: int = 5) -> float:
    """The MRR that a perfect reasoner is expected to reach on a split, over all queries as in `hire evaluate`."""
    of_task = {rule["task"]: rule["mrr"] for rule in json.loads((folder / "rules.json").read_text())["rules"]}
    tasks = open_dataset(dataset).split(split)
    queries = np.array([len(task.pairs) - shots for task in tasks])
    return float(np.average([of_task[task.name] for task in tasks], weights=queries))


def main() -> None:
    """Write a graph, or tell what a perfect reasoner reaches on the dataset that was built from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entities", type=int, default=WIKI_ENTITIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judge", metavar="DATASET", help="the dataset that was built from the folder")
    options = parser.parse_args()
    if options.judge:
        for split in ("dev", "test"):
            print(f"{split}: a perfect reasoner reaches MRR {judge(options.folder, options.judge, split):.3f}")
        return
    planted = Planted(options.entities, options.seed)
    planted.write(options.folder)
    print(f"{options.folder}: {planted.entities:,} entities, {planted.relations} + {planted.tasks} relations")


if __name__ == "__main__":
    main()
