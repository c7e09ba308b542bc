"""Any graph is answered without training."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest
from click.testing import Result
from pyoxigraph import NamedNode, Quad

import hire
from hire.data.dataset import FewShotDataset
from hire.data.open import open_graph
from hire.errors import HireError
from tests.data.sources.test_sparql import sparql_endpoint

PAIRS = [("cell_component", "cell"), ("tissue", "animal"), ("gene_or_genome", "cell")]


def triples_of(dataset: FewShotDataset) -> list[tuple[str, str, str]]:
    graph = dataset.graph
    return [
        (graph.entities[int(h)], graph.relations[int(r)], graph.entities[int(t)]) for h, r, t in graph.triples.tolist()
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, umls: FewShotDataset) -> dict[str, Path]:
    """The background facts of umls-one, in several formats."""
    folder, triples = tmp_path_factory.mktemp("graphs"), triples_of(umls)
    rows = "".join(f"{h}\t{r}\t{t}\n" for h, r, t in triples)
    quoted = "head,relation,tail\n" + "".join(f'"{h}","{r}","{t}"\n' for h, r, t in triples)
    statements = "".join(f"<http://x/{h}> <http://x/{r}> <http://x/{t}> .\n" for h, r, t in triples)
    (folder / "graph.tsv").write_text(rows)
    (folder / "graph.csv").write_text(quoted)
    (folder / "graph.nt").write_text(statements)
    (folder / "graph.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv", "graph.tsv.gz", "graph.nt"])
def test_a_raw_graph_answers_with_confidence_and_reasons(files: dict[str, Path], name: str) -> None:
    model = hire.open(files[name])
    prefix = "http://x/" if name.endswith(".nt") else ""
    relation = model.teach([(prefix + head, prefix + tail) for head, tail in PAIRS])
    answers = relation.predict(f"{prefix}embryonic_structure", k=5)
    assert len(answers) == 5 and all(answer.confidence is not None for answer in answers)
    assert relation.explain(f"{prefix}embryonic_structure", answers[0].tail).sentence
    assert model.across_graphs and "across graphs" in repr(model)


def test_a_sparql_endpoint_answers_and_is_read_once_a_day(
    umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path))
    with sparql_endpoint() as endpoint:
        for triple in triples_of(umls):
            head, predicate, tail = (NamedNode(f"http://x/{name}") for name in triple)
            endpoint.store.add(Quad(head, predicate, tail))
        relation = hire.open(endpoint.url).teach([(f"http://x/{head}", f"http://x/{tail}") for head, tail in PAIRS])
        answers = relation.predict("http://x/embryonic_structure", k=5)
        assert len(answers) == 5 and all(answer.confidence is not None for answer in answers)
        asked = len(endpoint.asked)
        hire.open(endpoint.url)
        assert len(endpoint.asked) == asked
        monkeypatch.setattr("hire.data.open.datetime", Tomorrow)
        hire.open(endpoint.url)
        assert len(endpoint.asked) > asked


class Tomorrow(datetime):
    """A clock that is a day fast."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=1)


def test_formats_of_one_graph_give_the_same_answers(files: dict[str, Path]) -> None:
    found = [
        hire.open(files[name]).teach(PAIRS).predict("embryonic_structure", k=8)
        for name in ("graph.tsv", "graph.csv", "graph.tsv.gz")
    ]
    assert found[0] == found[1] == found[2]


def test_a_file_is_read_once_and_again_when_it_changes(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text(files["graph.tsv"].read_text())
    first = open_graph(path)
    assert not first.tasks and first.name == "graph.tsv"
    monkeypatch.setattr("hire.data.open.read_sources", None)  # not needed again
    assert open_graph(path).graph.entities.text.tobytes() == first.graph.entities.text.tobytes()
    monkeypatch.undo()
    path.write_text("a\tlinks\tb\n" + path.read_text())
    assert "links" in open_graph(path).graph.relations


def test_the_command_line_takes_a_graph_for_a_run(
    run: Callable[..., Result], files: dict[str, Path], tmp_path: Path
) -> None:
    references = tmp_path / "refs.tsv"
    references.write_text("".join(f"{h}\t{t}\n" for h, t in PAIRS))
    graph, head = files["graph.tsv"], ("--head", "embryonic_structure")
    found = run("predict", graph, "--references", references, *head, "--format", "json", "-k", 3)
    assert found.exit_code == 0, found.output
    answers = json.loads(found.stdout)["answers"]
    assert len(answers) == 3 and all(0 < answer["confidence"] < 1 for answer in answers)
    explained = run("explain", graph, "--references", references, *head, "--tail", answers[0]["tail"], "--json")
    assert json.loads(explained.stdout)["confidence"] == pytest.approx(answers[0]["confidence"])
    evaluated = run("evaluate", "umls-one", "--split", "dev", "--shots", 3, "--json")
    assert evaluated.exit_code == 0 and json.loads(evaluated.stdout)["realistic"]["mrr"] > 0.3
    for wrong, message in (
        (("predict", tmp_path / "none.tsv", "--references", references, *head), "none.tsv"),
        (("evaluate", graph, "--split", "dev"), "dev"),
    ):
        refused = run(*wrong)
        assert refused.exit_code == 2 and message in refused.output and "Traceback" not in refused.output


def test_a_file_that_is_no_graph_is_told(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "two.tsv").write_text("a\tb\n")
    for name in ("picture.png", "two.tsv", "missing.tsv"):
        with pytest.raises(HireError, match=name):
            hire.open(tmp_path / name)


def test_a_run_opens_as_before(umls_run: Path) -> None:
    model = hire.open(umls_run)
    assert model.system.name == "hire" and not model.across_graphs
