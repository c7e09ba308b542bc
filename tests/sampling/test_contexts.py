from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.dataset import FewShotDataset
from hire.sampling.contexts import Contexts, ContextSampler
from hire.sampling.episodes import EpisodeSampler
from tests.data.test_graph import ENTITIES, RELATIONS, graph_of, triple

pairs = st.lists(st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, ENTITIES - 1)), min_size=1, max_size=8)


def tuples_of(contexts: Contexts, row: int, side: int) -> list[list[int]]:
    mask = contexts.mask[row, side]
    parts = (part[row, side][mask].tolist() for part in (contexts.relations, contexts.entities))
    return [list(found) for found in zip(*parts, strict=True)]


@given(st.lists(triple), pairs, st.integers(1, 5))
def test_contexts_are_the_first_neighbors_of_head_and_tail(
    triples: list[tuple[int, int, int]], wanted: list[tuple[int, int]], cap: int
) -> None:
    graph = graph_of(triples)
    found = ContextSampler(graph, cap).true(np.array(wanted), None)
    for row, (head, tail) in enumerate(wanted):
        assert tuples_of(found, row, 0) == graph.neighbors_of(head, cap).tolist()
        assert tuples_of(found, row, 1) == graph.neighbors_of(tail, cap).tolist()
    assert not found.entities[~found.mask].any() and not found.relations[~found.mask].any()


@given(st.lists(triple, min_size=1, unique=True), st.integers(1, 5))
def test_a_triplet_is_kept_out_of_its_own_context(triples: list[tuple[int, int, int]], cap: int) -> None:
    graph = graph_of(triples)
    array = np.array(triples)
    found = ContextSampler(graph, cap).true(array[:, [0, 2]], array[:, 1])
    for row, (head, relation, tail) in enumerate(triples):
        away, back = [relation, tail], [relation + RELATIONS, head]
        own = {0: [away], 1: [back]} if head != tail else {0: [away, back], 1: [away, back]}
        for side, entity in enumerate((head, tail)):
            others = [x for x in graph.neighbors_of(entity, None).tolist() if x not in own[side]]
            assert tuples_of(found, row, side) == others[:cap]


@settings(deadline=None)
@given(st.lists(triple), pairs, st.integers(0, 2**32))
def test_false_contexts_differ_in_one_part_of_every_real_tuple(
    triples: list[tuple[int, int, int]], wanted: list[tuple[int, int]], seed: int
) -> None:
    graph = graph_of(triples)
    sampler = ContextSampler(graph)
    true = sampler.true(np.array(wanted), None)
    false = sampler.false(true, np.random.default_rng(seed))
    relation_differs, entity_differs = true.relations != false.relations, true.entities != false.entities
    assert ((relation_differs ^ entity_differs) == true.mask).all()
    assert (false.mask == true.mask).all()
    used = {r + d * RELATIONS for _, r, _ in triples for d in (0, 1)}
    assert set(false.relations[false.mask].tolist()) <= used
    assert set(false.entities[false.mask].tolist()) <= set(true.entities[true.mask].tolist())


@given(st.lists(triple, min_size=1, unique=True), st.integers(1, 5))
def test_minus_one_takes_out_every_link_between_head_and_tail(triples: list[tuple[int, int, int]], cap: int) -> None:
    graph = graph_of(triples)
    array = np.array(triples)
    found = ContextSampler(graph, cap).true(array[:, [0, 2]], np.full(len(triples), -1))
    for row, (head, _, tail) in enumerate(triples):
        for side, (entity, partner) in enumerate(((head, tail), (tail, head))):
            others = [x for x in graph.neighbors_of(entity, None).tolist() if x[1] != partner]
            assert tuples_of(found, row, side) == others[:cap]


def test_episodes_go_in_as_they_are(umls: FewShotDataset) -> None:
    batch = EpisodeSampler(umls, shots=3, batch_size=8, regime="in-train").batch(0)
    sampler = ContextSampler(umls.graph)
    found = sampler.true(batch.references, batch.relations[:, None])
    assert found.mask.shape[:3] == (8, 3, 2)
    one = sampler.true(batch.references[5, 1:2].numpy(), batch.relations[5:6].numpy())
    width = one.mask.shape[-1]
    assert (found.entities[5, 1, :, :width] == one.entities[0]).all()
    assert (found.mask[5, 1, :, :width] == one.mask[0]).all() and not found.mask[5, 1, :, width:].any()


def test_relations_and_entities_are_corrupted_about_equally_often(umls: FewShotDataset) -> None:
    sampler = ContextSampler(umls.graph)
    true = sampler.true(umls.split("train")[0].pairs, None)
    before = true.relations.clone(), true.entities.clone()
    false = sampler.false(true, np.random.default_rng(0))
    share = (false.relations != true.relations)[true.mask].float().mean().item()
    assert 0.48 < share < 0.52
    assert (true.relations == before[0]).all() and (true.entities == before[1]).all()


def test_the_same_generator_gives_the_same_falsehoods(umls: FewShotDataset) -> None:
    sampler = ContextSampler(umls.graph)
    true = sampler.true(umls.split("train")[0].pairs, None)
    first, again = (sampler.false(true, np.random.default_rng(5)) for _ in range(2))
    assert (first.relations == again.relations).all() and (first.entities == again.entities).all()
