"""A dataset whose keys have the ranks of pairs, as with 100 million entities, is the same in every other way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from hire.cli import hire
from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.data.statistics import statistics
from hire.evaluation.ranking import evaluate
from hire.sampling.episodes import EpisodeSampler
from hire.sampling.neighbors import NeighborFinder
from hire.sampling.task_pool import TaskPool, TaskShares
from hire.systems.base import Support
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.model import PathModel
from hire.systems.path.settings import PathTrainingSettings
from hire.systems.path.tasks import PathTasks
from tests.support import ranked_keys
from tests.systems.path.test_model import path_network

WORDS = ["anna", "berta", "carla", "dora", "emma", "frida", "greta", "hanna", "ida", "jana", "klara", "lena"]
KINDS = ["person", "city", "team", "club", "river"]


def rows() -> Iterator[str]:
    """A graph with types, entities of the same name, and a head that has every entity as a tail."""
    names = [f"concept:{kind}:{word}" for i, word in enumerate(WORDS) for kind in KINDS[: 1 + i % len(KINDS)]]
    generator = np.random.default_rng(5)
    for number, size in enumerate([20, 60, 70, 80, 90, 300]):
        for head, tail in generator.integers(0, len(names), (size, 2)):
            yield f"{names[head]}\tr{number}\t{names[tail]}"
    yield from (f"{names[-1]}\tr1\t{name}" for name in names)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FewShotDataset]:
    """The same graph, built by the command, in either form, and opened again."""
    folder = tmp_path_factory.mktemp("forms")
    (folder / "graph.tsv").write_text("\n".join(rows()) + "\n")
    found = {}
    for form, keys in (("plain", nullcontext()), ("ranked", ranked_keys())):
        (folder / form).mkdir()
        command = ["data", "build", str(folder / "graph.tsv"), "-o", str(folder / form / "graph")]
        command += ["--type-pattern", "concept:{type}:{name}", "--more-than", "50", "--fewer-than", "200"]
        with keys:
            done = CliRunner().invoke(hire, command)
            assert done.exit_code == 0, done.output
            found[form] = open_dataset(folder / form / "graph")
            EvidenceGraph.of(found[form])
    return found


def forms(datasets: dict[str, FewShotDataset], compute: Any) -> list[Any]:
    """What is computed from the dataset in its plain form, and in the other, while all keys have ranks."""
    plain = compute(datasets["plain"])
    with ranked_keys():
        return [plain, compute(datasets["ranked"])]


def arrays_of(batch: Any) -> list[list[Any]]:
    return [np.asarray(part).tolist() for part in vars(batch).values() if part is not None]


def test_only_the_keys_differ(datasets: dict[str, FewShotDataset]) -> None:
    plain, ranked = datasets["plain"], datasets["ranked"]
    assert plain.facts.pairs is None and ranked.facts.pairs is not None
    files = {form: json.loads((datasets[form].directory / "dataset.json").read_text())["files"] for form in datasets}  # type: ignore[operator]
    changed = {name for name, about in files["ranked"].items() if files["plain"].get(name) != about}
    assert changed == {"facts.npy", "fact_pairs.npy"} and files["plain"].keys() < files["ranked"].keys()
    assert np.array_equal(plain.facts.triples(), ranked.facts.triples())
    assert [heads.tolist() for heads in ranked.facts.saturated_heads()] == [
        [plain.graph.entities.id("concept:city:lena")],
        [plain.graph.relations.id("r1")],
    ]
    assert statistics(plain) == statistics(ranked)


def test_the_evidence_is_the_same(datasets: dict[str, FewShotDataset]) -> None:
    plain, ranked = forms(datasets, lambda dataset: EvidenceGraph.of(dataset).arrays())
    assert ranked.keys() - plain.keys() == {"known_pairs"}  # there are entities of the same name
    for name in plain.keys() - {"known"}:
        assert np.array_equal(plain[name], ranked[name]), name


def test_the_same_is_drawn(datasets: dict[str, FewShotDataset]) -> None:
    def episodes(dataset: FewShotDataset) -> Any:
        sampler = EpisodeSampler(dataset, shots=2, negatives=2, batch_size=200, regime="in-train")
        return [arrays_of(sampler.batch(step)) for step in range(3)]

    def pooled(dataset: FewShotDataset) -> Any:
        pool = TaskPool(dataset, "in-train", TaskShares(), min_facts=5)
        batch = pool.batch(0, 1, tasks=20, shots=2, queries=3, negatives=30, inner_negatives=8)
        finder = NeighborFinder(dataset.graph, 4)
        found = finder.find(batch.query_negatives.numpy(), finder.hidden_from(batch)[:, None])
        return arrays_of(batch), [part.tolist() for part in found]

    def of_paths(dataset: FewShotDataset) -> Any:
        tasks = PathTasks(dataset, EvidenceGraph.of(dataset), PathTrainingSettings(shots=(2,)))
        batch = tasks.batch(3)
        return batch.walks.reached.tolist(), batch.stands_for.tolist(), batch.walks.pairs.tolist()

    for draw in (episodes, pooled, of_paths):
        plain, ranked = forms(datasets, draw)
        assert plain == ranked


def test_the_same_is_ranked_and_explained(datasets: dict[str, FewShotDataset]) -> None:
    def answers(dataset: FewShotDataset) -> Any:
        model = PathModel(path_network(), EvidenceGraph.of(dataset))
        task = dataset.split("test")[0]
        state = model.adapt(Support(np.asarray(task.pairs[:3]), relation=task.relation))
        explained = [model.explain(state, int(head), int(tail)) for head, tail in task.pairs[3:6]]
        assert any(evidence.rules for evidence in explained)
        return evaluate(model, dataset, "test", shots=3), explained

    plain, ranked = forms(datasets, answers)
    assert plain == ranked


def test_new_entities_are_added_alike(datasets: dict[str, FewShotDataset]) -> None:
    def wider(dataset: FewShotDataset) -> Any:
        count = len(dataset.graph.entities)
        more = dataset.extended(["new"], np.array([[count, 0, 3], [2, 5, count]], np.int32))
        assert (more.facts.pairs is None) == (dataset.facts.pairs is None)
        model = PathModel(path_network(), EvidenceGraph.of(dataset)).extended(more.graph)
        scores = model.score(model.adapt(Support(np.array([[0, 3]]))), np.array([count]), np.arange(count + 1))
        return more.facts.triples().tolist(), scores.tolist()

    plain, ranked = forms(datasets, wider)
    assert plain == ranked


def test_verified_and_told_when_damaged(datasets: dict[str, FewShotDataset], tmp_path: Path) -> None:
    datasets["ranked"].save(tmp_path / "ranked")
    verify = ["data", "verify", str(tmp_path / "ranked")]
    done = CliRunner().invoke(hire, verify)
    assert done.exit_code == 0 and "fact_pairs.npy" in done.output
    path = tmp_path / "ranked" / "fact_pairs.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert CliRunner().invoke(hire, verify).exit_code == 2
