from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from hire.data.build import BuildSettings, build
from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.sources.columns import TripleTable
from hire.data.vocabulary import Vocabulary
from hire.systems.base import Support
from hire.systems.path.many import (
    ManyGraphsTrainer,
    TrainingGraph,
    thinned,
    training_graphs,
    types_by_relation_name,
    with_echoes,
    without_types,
)
from hire.systems.path.model import PathModel
from hire.systems.path.pretrained import WEIGHTS, about, pretrained
from hire.systems.path.settings import PathModelSettings, PathSettings, PathTrainingSettings
from tests.conftest import random_triples

SETTINGS = PathSettings(
    model=PathModelSettings(members=1), training=PathTrainingSettings(steps=4, tasks=1, queries=3, candidates=50)
)


@pytest.fixture(scope="module")
def other() -> FewShotDataset:
    """Another graph, with types in its names."""
    table = TripleTable("other")
    for head, relation, tail in random_triples(3):
        table.triples.append(f"concept:x{head[-1]}:{head}", relation, f"concept:x{tail[-1]}:{tail}")
    return build([table], BuildSettings("other", type_pattern="concept:{type}:{name}"))[0]


def test_a_step_has_tasks_of_one_graph_by_the_shares(umls: FewShotDataset, other: FewShotDataset) -> None:
    graphs = [TrainingGraph(umls, 3.0, SETTINGS), TrainingGraph(other, 1.0, SETTINGS)]
    trainer = ManyGraphsTrainer(graphs, SETTINGS)
    drawn = Counter(trainer.graph_of(step) for step in range(400))
    assert 0.68 < drawn[0] / 400 < 0.82
    for step in range(8):
        types = trainer.batch(step).edge_features.shape[1]
        assert types == 2 * len(graphs[trainer.graph_of(step)].dataset.graph.relations)


def test_one_network_learns_from_all_and_scores_on_any(umls: FewShotDataset, other: FewShotDataset) -> None:
    def trained() -> ManyGraphsTrainer:
        trainer = ManyGraphsTrainer(training_graphs({"a": umls, "b": other}, {"a": 1, "b": 1}, SETTINGS), SETTINGS)
        for _ in range(trainer.steps):
            trainer.train_step()
        return trainer

    first, second = trained().system(), trained().system()
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, second.tensors()[name])
    for dataset in (umls, other):
        system = PathModel.restore(dataset, SETTINGS, first.tensors())
        pairs = np.asarray(dataset.split("train")[0].pairs, np.int64)
        scores = system.score(system.adapt(Support(pairs[:3])), pairs[:4, 0], np.arange(20))
        assert scores.isfinite().all()


def test_a_typed_graph_is_there_without_types_too(umls: FewShotDataset, other: FewShotDataset) -> None:
    graphs = training_graphs({"a": umls, "b": other}, {"a": 1.0, "b": 1.0}, SETTINGS)
    assert [graph.share for graph in graphs] == [1.0, 0.5, 0.5]
    plain = without_types(other)
    assert other.graph.types is not None and plain.graph.types is None
    assert all(task.candidates is None for task in plain.tasks) and len(plain.tasks) == len(other.tasks)
    assert (plain.graph.triples == other.graph.triples).all()


def test_a_thinned_graph_keeps_a_share_of_its_facts_and_every_task(umls: FewShotDataset) -> None:
    thin = thinned(umls, 0.2, None)
    facts, kept = (set(map(tuple, graph.triples.tolist())) for graph in (umls.graph, thin.graph))
    assert kept < facts and 0.15 < len(kept) / len(facts) < 0.25
    assert [len(task.pairs) for task in thin.tasks] == [len(task.pairs) for task in umls.tasks]


def test_echoes_repeat_part_of_other_relations(umls: FewShotDataset) -> None:
    echoed = with_echoes(umls)
    before, after = umls.graph, echoed.graph
    assert len(after.relations) > len(before.relations) + 5
    triples = np.asarray(after.triples)
    assert (triples[: len(before.triples)] == before.triples).all()
    known = {(int(h), int(t)) for h, _, t in umls.graph.triples} | {
        (int(h), int(t)) for task in umls.split("train") for h, t in task.pairs
    }
    known |= {(tail, head) for head, tail in known}
    echoes = [triples[triples[:, 1] == relation] for relation in range(len(before.relations), len(after.relations))]
    shares = [np.mean([(int(h), int(t)) in known for h, _, t in echo]) for echo in echoes]
    assert min(shares) > 0.5 and np.mean(shares) < 0.99
    symmetric = [{(h, t) for h, _, t in echo.tolist()} == {(t, h) for h, _, t in echo.tolist()} for echo in echoes]
    assert 0 < sum(symmetric) < len(echoes) / 2


def test_types_of_freebase_are_in_the_names_of_relations() -> None:
    relations = ["/people/person/spouse", "/people/person/religion", "/film/film/director"]
    graph = KnowledgeGraph.of(
        Vocabulary.of(["a", "b", "c"], "entity"),
        Vocabulary.of(relations, "relation"),
        np.array([[0, 0, 1], [0, 1, 2], [0, 2, 1], [1, 2, 2]]),
    )
    types = types_by_relation_name(graph)
    assert [[types.names[int(each)] for each in types.of_entity(entity)] for entity in range(3)] == [
        ["/film/film", "/people/person"],
        ["/film/film"],
        [],
    ]


def test_the_shipped_weights_are_small_and_say_where_they_come_from(umls: FewShotDataset) -> None:
    from importlib.resources import files

    size = len((files("hire.systems.path.pretrained") / WEIGHTS).read_bytes())
    assert size < 2_000_000
    content = about()
    assert {"nell-one", "fb15k237-one", "umls-one"} <= content["graphs"].keys() and content["finished"]
    assert set(content["calibration"]) == {"1", "3", "5"}
    system = pretrained(umls)
    pairs = np.asarray(umls.split("dev")[0].pairs, np.int64)
    assert system.score(system.adapt(Support(pairs[:3])), pairs[:4, 0], np.arange(20)).isfinite().all()
