from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.data.graph import KnowledgeGraph
from hire.data.vocabulary import StringTable, Vocabulary
from hire.inference.explain import Explanation
from hire.inference.model import TrainedModel
from hire.inference.picture import explanation_svg
from hire.systems.evidence import Evidence, Rule, SharedTuple, SimilarReference
from hire.systems.mean_translation import MeanTranslation
from hire.systems.popularity import Popularity

ENTITIES = ["ann", "ben", "cid", "x", "y", "z", "kim", "leo", "mia", "gym"]
RELATIONS = ["plays_for", "led_by", "knows", "works_at", "coach"]
TRIPLES = [
    *[(player, "plays_for", team) for player, team in (("ann", "x"), ("ben", "y"), ("cid", "z"))],
    *[(team, "led_by", coach) for team, coach in (("x", "kim"), ("y", "leo"), ("z", "mia"))],
    ("leo", "knows", "ben"),
    ("mia", "knows", "cid"),
    *[(coach, "works_at", "gym") for coach in ("kim", "leo", "mia")],
]


@pytest.fixture(scope="module")
def dataset() -> FewShotDataset:
    entities, relations = Vocabulary.of(ENTITIES, "entity"), Vocabulary.of(RELATIONS, "relation")
    triples = np.array([[ENTITIES.index(h), RELATIONS.index(r), ENTITIES.index(t)] for h, r, t in TRIPLES])
    labels = StringTable.of(["Ann", *[""] * (len(ENTITIES) - 1)])
    graph = KnowledgeGraph.of(entities, relations, triples, labels)
    return FewShotDataset.of("tiny", graph, {"train": {}, "dev": {}, "test": {}}, {})


def test_the_graph_tells_paths_and_what_is_shared(dataset: FewShotDataset) -> None:
    relation = TrainedModel(Popularity(dataset.graph), dataset).teach([("ann", "kim"), ("ben", "leo")], name="coach")
    explanation = relation.explain("cid", "mia")
    found = json.loads(json.dumps(explanation.to_dict()))
    assert [found[key] for key in ("relation", "head", "tail", "confidence")] == ["coach", "cid", "mia", None]
    assert found["score"] == relation.score([("cid", "mia")])[0].score
    first, second = found["rules"]
    assert first["text"] == "coach(h, t) <- plays_for(h, x), led_by(x, t): 2 of 2 references"
    assert first["kinds"] == ["plays_for", "led_by"] and first["paths"] == [["cid", "z", "mia"]]
    assert second["text"] == "coach(h, t) <- knows⁻¹(h, t): 1 of 2 references" and second["paths"] == [["cid", "mia"]]
    assert [rule["weight"] for rule in (first, second)] == [1.0, 0.5]  # shares of the references
    assert first["words"] == "linked as 2 of 2 references are"
    assert all(piece["for"] and piece["support"] for piece in (first, second, *found["shared"]))
    (shared,) = found["shared"]
    assert [shared[key] for key in ("relation", "entity", "support", "references")] == ["works_at", "gym", 2, 2]
    assert found["similar"]["head"] in ("ann", "ben") and 0 <= found["similar"]["head_similarity"] <= 1
    assert found["sentence"].startswith("cid —plays_for→ z —led_by→ mia is a path like those of 2 of 2 references; ")
    assert "mia —works_at→ gym is also said of the tails of 2 of 2 references" in found["sentence"]
    assert "Ann" in relation.explain("ben", "mia").sentence and relation.explain("ann", "mia").to_dict()["labels"]


def test_paths_like_those_of_no_reference_are_no_reason(dataset: FewShotDataset) -> None:
    relation = TrainedModel(Popularity(dataset.graph), dataset).teach([("ann", "kim")])
    found = relation.explain("gym", "x").to_dict()
    assert found["rules"] == [] and found["shared"] == []
    assert found["sentence"] == "Nothing in the graph speaks for it."
    assert all("knows" not in rule["text"] for rule in relation.explain("cid", "mia").to_dict()["rules"])


def test_the_relation_itself_is_no_reason(dataset: FewShotDataset) -> None:
    model = TrainedModel(Popularity(dataset.graph), dataset)
    for name, seen in (("knows", False), ("likes", True)):
        rules = model.teach([("leo", "ben")], name=name).explain("mia", "cid").to_dict()["rules"]
        assert (["knows"] in [rule["kinds"] for rule in rules]) == seen


def test_embeddings_tell_the_most_similar_reference(dataset: FewShotDataset) -> None:
    vectors = torch.eye(len(ENTITIES))
    vectors[ENTITIES.index("cid")] = vectors[ENTITIES.index("ben")] * 3
    relation = TrainedModel(MeanTranslation(vectors), dataset).teach([("ann", "kim"), ("ben", "leo")])
    similar = relation.explain("cid", "mia").to_dict()["similar"]
    assert similar == {"head": "ben", "tail": "leo", "head_similarity": 1.0, "tail_similarity": 0.0}


def explained(dataset: FewShotDataset, rules: list[Rule], shared: list[SharedTuple]) -> Explanation:
    """An explanation of cid - mia by a system that has evidence of its own."""

    class Explains(Popularity):
        capabilities = frozenset({"explain"})

        def explain(self, relation: Any, head: int, tail: int, *, most: int = 10) -> Evidence:
            return Evidence(1.5, tuple(rules), tuple(shared), SimilarReference(0, 6, 0.5, 0.75))

    return TrainedModel(Explains(dataset.graph), dataset).teach([("ann", "kim")]).explain("cid", "mia")


CID, MIA, Z = (ENTITIES.index(name) for name in ("cid", "mia", "z"))
SUPPORTED = Rule((0, 1), 2, 3, 0.5, ((CID, Z, MIA),))
UNSUPPORTED = Rule((0, 1, 7), 0, 3, 0.25, ((CID, 3, 4, MIA),))
AGAINST = Rule((7,), 0, 3, -0.75, ((CID, MIA),))
SHARED = SharedTuple(3, 9, 1, 3, 0.25)
SHARED_AGAINST = SharedTuple(3, 9, 1, 3, -1.0)
LIKENESS = ("like those", "as 0", "also", "shared with")  # words for what references have in common with the answer


def test_a_models_own_evidence_comes_first(dataset: FewShotDataset) -> None:
    found = explained(dataset, [SUPPORTED, UNSUPPORTED], [SHARED]).to_dict()
    assert found["score"] == 1.5 and found["similar"]["tail"] == "kim"
    assert found["rules"][1]["text"] == (
        "taught(h, t) <- plays_for(h, x), led_by(x, y), knows⁻¹(y, t): none of 3 references"
    )


def test_what_speaks_against_is_said_to(dataset: FewShotDataset) -> None:
    found = explained(dataset, [SUPPORTED, AGAINST], [SHARED]).to_dict()
    assert found["sentence"] == (
        "cid —plays_for→ z —led_by→ mia is a path like those of 2 of 3 references; "
        "mia —works_at→ gym is also said of the tails of 1 of 3 references; "
        "speaks against: cid —knows⁻¹→ mia, a path that no reference has; the most similar reference is Ann → kim."
    )
    assert [rule["for"] for rule in found["rules"]] == [True, False]
    assert found["rules"][1]["words"] == "speaks against: linked as no reference is"
    assert [found["rules"][1][key] for key in ("weight", "support", "references")] == [-0.75, 0, 3]
    both = explained(dataset, [replace(SUPPORTED, weight=-0.5)], [SHARED_AGAINST])  # the strongest is told
    assert both.to_dict()["rules"][0]["words"] == "speaks against, though linked as 2 of 3 references are"
    words = both.to_dict()["shared"][0]["words"]
    assert words == "speaks against, though shared with the tails of 1 of 3 references"
    assert both.sentence.startswith(
        "Nothing in the graph speaks for it; "
        "speaks against: mia —works_at→ gym, though it is said of the tails of 1 of 3 references; "
    )
    alone = explained(dataset, [replace(SUPPORTED, weight=-0.5)], []).sentence
    assert "mia, though such a path links 2 of 3 references;" in alone


def test_evidence_is_scaled_with_the_scores(dataset: FewShotDataset) -> None:
    evidence = explained(dataset, [SUPPORTED, AGAINST], [SHARED]).evidence
    assert [rule.weight for rule in evidence.scaled(2).rules] == [1.0, -1.5] and evidence.scaled(2).score == 3.0
    assert evidence.scaled(2).shared[0].weight == 0.5
    assert not evidence.scaled(0).rules and not evidence.scaled(0).shared


def test_what_no_reference_has_is_not_called_like_the_references(dataset: FewShotDataset) -> None:
    explanation = explained(dataset, [UNSUPPORTED, AGAINST], [])
    assert explanation.sentence.startswith(
        "cid —plays_for→ x —led_by→ y —knows⁻¹→ mia is a path that no reference has; speaks against: cid —knows⁻¹→ mia"
    )
    found = explanation.to_dict()
    assert found["rules"][0]["words"] == "linked as no reference is"
    told = [found["sentence"], *(rule[key] for rule in found["rules"] for key in ("words", "text"))]
    told.append(explanation_svg(found))
    assert not [words for words in told for likeness in LIKENESS if likeness in words]


def test_hubs_do_not_take_forever() -> None:
    count = 3_000
    hub = [[0, 0, i] for i in range(2, count)] + [[1, 0, i] for i in range(2, count)]
    graph = KnowledgeGraph.of(Vocabulary.of([f"e{i}" for i in range(count)]), Vocabulary.of(["r"]), np.array(hub))
    dataset = FewShotDataset.of("hub", graph, {"train": {}, "dev": {}, "test": {}}, {})
    found = TrainedModel(Popularity(graph), dataset).teach([("e0", "e1")]).explain("e1", "e0", most=3).to_dict()
    assert len(found["rules"][0]["paths"]) == len(found["shared"]) == 3
