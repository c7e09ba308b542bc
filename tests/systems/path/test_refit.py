"""The pre-trained network is fitted to the graph that it answers on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import hire
from hire.data.dataset import FewShotDataset
from hire.data.open import open_graph
from hire.inference.open import fingerprint_of_model
from hire.systems.path.model import PathModel
from hire.systems.path.pretrained import about, pretrained
from hire.systems.path.refit import WEIGHTS, LastPart, RefitSettings, refitted
from hire.systems.path.settings import PathSettings
from hire.util.settings import from_plain
from tests.inference.test_open import triples_of
from tests.systems.path.test_network import inputs_of

REFERENCES = [("cell_component", "cell"), ("tissue", "animal")]


def shipped() -> PathSettings:
    return from_plain(PathSettings, about()["settings"])


def fitted_to(dataset: FewShotDataset, settings: RefitSettings | None = None) -> dict[str, torch.Tensor]:
    system = pretrained(dataset, refit=False)
    return refitted(system.network, dataset, system.graph, shipped().training, settings)


def test_a_score_is_linear_in_the_last_inputs(umls: FewShotDataset) -> None:
    features, tails, walked, _ = inputs_of(umls)
    network = pretrained(umls, refit=False).network
    with torch.no_grad():
        weights = network.weigh(features[:1])
        expected = network(features[:1], tails[0], walked[0])
        constant = (network.of_pairs.get_parameter("bias")[..., 0] + network.last.get_parameter("bias")[..., 0]).T
        inputs = network.last_inputs(weights, tails[0], walked[0])
        found = (inputs * network.last_weights).sum(dim=2) + constant
        assert torch.allclose(found.T, expected, atol=1e-4) and expected.std() > 0.5
        network.last_weights = 2 * network.last_weights
        doubled = network(features[:1], tails[0], walked[0])
        assert torch.allclose(doubled, 2 * expected - constant.T, atol=1e-4)


def test_the_fit_is_the_least_loss_and_its_prior_holds() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(50, 9, 4, generator=generator)
    inputs[:, 0, 2] += 1  # true tails have more of it
    stands_for = torch.randn(50, 9, generator=generator)
    stands_for[:, 8] = -1e4  # padding
    prior = torch.tensor([0.1, 0.2, -0.5, 0.0])
    part = LastPart(inputs, stands_for, prior, 5.0)
    change = part.fitted(20)
    assert part.loss(change) < part.loss(torch.zeros(4)) - 1 and change.argmax() == 2 and change[2] > 0.5
    exact = change.clone().requires_grad_()
    (slope,) = torch.autograd.grad(part.loss(exact), exact)
    assert slope.abs().max() < 0.02  # it is convex: where it is flat, it is least
    torch.testing.assert_close(part.slope(change), slope, atol=1e-3, rtol=0)
    mass = torch.softmax(part.scores + part.inputs @ change, dim=1)
    hessian = torch.autograd.functional.hessian(part.loss, change)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(part.curvature(mass, prior), hessian @ prior, atol=1e-2, rtol=1e-3)
    assert LastPart(inputs, stands_for, prior, 1e6).fitted(20).abs().max() < 1e-3
    elsewhere = LastPart(torch.where(stands_for[..., None] > -1e3, inputs, 7.0), stands_for, prior, 5.0)
    torch.testing.assert_close(elsewhere.fitted(20), change)  # padding says nothing


def test_only_background_and_train_facts_are_looked_at(umls: FewShotDataset) -> None:
    pairs = np.array(umls.task_pairs)
    for task, start, end in zip(umls.tasks, umls.task_offsets, umls.task_offsets[1:], strict=False):
        if task.split != "train":
            pairs[start:end] = pairs[start:end][:, ::-1]
    found, other = fitted_to(umls), fitted_to(replace(umls, task_pairs=pairs))
    assert torch.equal(found[WEIGHTS], other[WEIGHTS])
    assert not torch.equal(found[WEIGHTS], pretrained(umls, refit=False).network.last_weights)


def test_a_graph_with_few_relations_keeps_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "tiny.tsv"
    path.write_text("".join(f"a{i}\t{relation}\tb{i % 7}\n" for i in range(30) for relation in ("likes", "knows")))
    answers = [
        hire.open(path, refit=refit).teach([("a1", "b1"), ("a2", "b2")]).predict("a10", k=5) for refit in (True, False)
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 5
    path.write_text("a\tlikes\tb\n")  # nothing to make a task of
    assert hire.open(path).teach([("a", "b")]) is not None
    dataset = open_graph(path)
    assert fitted_to(dataset) == {}


def test_large_graphs_keep_the_weights(umls: FewShotDataset) -> None:
    assert fitted_to(umls, RefitSettings(most_facts=len(umls.graph.triples) - 1)) == {}
    assert fitted_to(umls, RefitSettings(most_facts=len(umls.graph.triples))) != {}


def test_a_graph_opens_with_the_same_bits_from_the_cache_and_without_it(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path))
    path = tmp_path / "graph.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples_of(umls)))

    def weights() -> torch.Tensor:
        system = hire.open(path).system
        assert isinstance(system, PathModel)
        return system.network.last_weights.detach().clone()

    first = weights()
    (kept,) = tmp_path.glob("refit-*.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr("hire.systems.path.refit.PathTasks", None)  # not needed again
        assert torch.equal(weights(), first)
    content = bytearray(kept.read_bytes())
    content[-5] ^= 1
    kept.write_bytes(content)
    assert torch.equal(weights(), first)  # damaged: made again
    assert kept.read_bytes() != content
    kept.unlink()
    assert torch.equal(weights(), first)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {
        refit: hire.open("umls-one", refit=refit).teach(REFERENCES).predict("tissue", k=3) for refit in (True, False)
    }
    assert scores[True] != scores[False]
    assert hire.open("umls-one").teach(REFERENCES).predict("tissue", k=3) == scores[True]
    name = fingerprint_of_model("umls-one")
    monkeypatch.setenv("HIRE_REFIT", "0")
    assert hire.open("umls-one").teach(REFERENCES).predict("tissue", k=3) == scores[False]
    assert fingerprint_of_model("umls-one") != name
