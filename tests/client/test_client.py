from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

import hire
from hire.client import connection as connection_module
from hire.client.connection import ServiceError
from hire.client.model import Client
from hire.client.relation import RemoteRelation
from hire.errors import HireError
from hire.inference.model import TrainedModel
from hire.inference.open import open_model
from hire.inference.relation import TaughtRelation
from tests.support import serving

PAIRS = [("virus", "organism"), ("bacterium", "organism"), ("fungus", "organism")]
TOKEN = "secret"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state = tmp_path_factory.mktemp("client") / "state.sqlite"
    with serving("umls-one", "--state", str(state), "--token", TOKEN) as (_, address):
        yield address


@pytest.fixture(scope="module")
def local() -> TrainedModel:
    return open_model("umls-one")


@pytest.fixture
def client(address: str) -> Client:
    return hire.Client(address, TOKEN, by="ana")


@pytest.fixture
def relation(client: Client) -> RemoteRelation:
    return client.teach(PAIRS, "kind", scope={"kind": "all"})


@pytest.mark.parametrize(
    ("ours", "theirs", "methods"),
    [
        (Client, TrainedModel, ["teach", "search", "with_entities"]),
        (
            RemoteRelation,
            TaughtRelation,
            ["add", "reject", "predict", "predict_many", "predict_heads", "answer_set", "score", "explain"],
        ),
    ],
)
def test_the_methods_take_what_those_of_a_local_model_take(ours: type, theirs: type, methods: list[str]) -> None:
    for name in methods:
        wanted = inspect.signature(getattr(theirs, name)).parameters
        found = inspect.signature(getattr(ours, name)).parameters
        for parameter, about in wanted.items():
            assert (found[parameter].default, found[parameter].kind) == (about.default, about.kind), (name, parameter)
    public = {name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if not name.startswith("_")}
    by_ids = {"taught", "with_facts", "similar_entities", "pairs", "by_head", "candidate_scores"}
    assert public - by_ids - {"forget"} == set(methods)  # the service looks after its own memory


def close(found: Any, expected: Any) -> bool:
    return bool(
        [each[0] for each in found] == [each[0] for each in expected]
        and [each[1:] for each in found] == [pytest.approx(each[1:], abs=1e-4) for each in expected]
    )


def test_answers_are_those_of_a_local_model(client: Client, relation: RemoteRelation, local: TrainedModel) -> None:
    taught = local.teach(PAIRS, "kind")
    assert close(relation.predict("plant", 5), taught.predict("plant", 5))
    assert close(relation.predict("virus", 5, known=True), taught.predict("virus", 5, known=True))
    assert close(relation.predict("plant", 50, threshold=0.2), taught.predict("plant", 50, threshold=0.2))
    many, expected = (dict(each.predict_many(["plant", "tissue", "cell"], 3)) for each in (relation, taught))
    assert many.keys() == expected.keys() and all(close(many[head], expected[head]) for head in many)
    assert close(relation.predict_heads("organism", 5), taught.predict_heads("organism", 5))
    assert close(relation.answer_set("plant", 0.8), taught.answer_set("plant", 0.8))
    assert close(relation.score([("plant", "cell")]), taught.score([("plant", "cell")]))
    why, wanted = (each.explain("plant", "animal", most=3) for each in (relation, taught))
    assert why.sentence == wanted.sentence
    data, plain = why.to_dict(), wanted.to_dict()
    assert data.keys() == plain.keys() and data["labels"] == plain["labels"]
    assert [rule["paths"] for rule in data["rules"]] == [rule["paths"] for rule in plain["rules"]]
    assert [shared["entity"] for shared in data["shared"]] == [shared["entity"] for shared in plain["shared"]]
    assert client.search("tiss") == local.search("tiss")
    assert not any(answer.tail == "cell" for answer in relation.reject("plant", "cell").predict("plant", 200))
    more = relation.add("plant", "organism")
    assert more.predict("tissue", 1)[0].score == pytest.approx(
        taught.add("plant", "organism").predict("tissue", 1)[0].score, abs=1e-4
    )


def test_new_entities_have_answers(client: Client, local: TrainedModel) -> None:
    facts: Any = {"moss": [("isa", "plant", "out"), ("affects", "cell_function", "in")]}
    found = client.with_entities(facts).teach(PAIRS, "kind").predict("moss", 3)
    assert close(found, local.with_entities(facts).teach(PAIRS, "kind").predict("moss", 3))
    with pytest.raises(HireError, match="moss"):
        client.teach(PAIRS).predict("moss")


def test_a_whole_review(client: Client, relation: RemoteRelation, tmp_path: Path) -> None:
    seen: list[Any] = []
    job = relation.complete(k=5, progress=seen.append)
    assert job["state"] == "done" and job["done"] == 135
    card = next(relation.cards("confident"))
    said = relation.judge(card["head"]["id"], card["tail"]["id"], "accept", version=card["version"])
    assert said["card"]["state"] == "accepted"
    assert relation.export() == f"{card['head']['id']}\tkind\t{card['tail']['id']}\n"
    relation.undo(said["entry"]["entry"])
    assert relation.export() == ""
    estimate = relation.estimate(0.5)
    batch = relation.accept_batch(0.5, expected=estimate["facts"])
    assert relation.refresh()["facts"] == batch["entries"] == estimate["facts"]
    assert relation.revert(batch["id"])["entries"] == batch["entries"]
    assert len(list(relation.history())) == 2 + 2 * batch["entries"]
    assert len(list(relation.cards("head", state="any"))) == 135
    log = relation.export("log")
    assert client.teach(PAIRS, "other").import_verdicts(log, "log")["entries"] == 0
    with pytest.raises(ServiceError) as caught:
        relation.cancel(job["id"])
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    relation.delete()
    assert relation.id not in [each.id for each in client.relations()]


def test_changes_of_others_are_seen(client: Client, relation: RemoteRelation) -> None:
    events = client.events(relation.id)
    assert next(events).kind == "ready"
    later = Timer(0.2, lambda: relation.judge("plant", "organism", "accept"))
    later.start()
    event = next(events)
    later.join()
    assert event.kind == "verdict" and event.data["tail"]["id"] == "organism"


def test_errors_have_the_words_of_the_service(client: Client, address: str, relation: RemoteRelation) -> None:
    with pytest.raises(ServiceError, match="unknown entity 'virsu'") as caught:
        relation.predict("virsu")
    assert caught.value.problems[0].remedy == "did you mean 'virus'?" and caught.value.code == "unknown-entity"
    with pytest.raises(ServiceError, match="token"):
        hire.Client(address, "wrong").search("a")
    with pytest.raises(HireError, match="no relation 'nobody'"):
        client.relation("nobody")
    with pytest.raises(HireError, match="unknown entity"):
        list(relation.predict_many(["plant", "virsu"]))


def test_what_does_not_respond_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SECONDS_BETWEEN_TRIES", 0.0)
    with pytest.raises(ServiceError, match="does not respond") as caught:
        hire.Client("http://127.0.0.1:1").search("a")
    assert "hire serve" in str(caught.value.problems[0].remedy)


def test_importing_the_client_is_quick() -> None:

    code = "import sys, hire; hire.Client; assert not {'torch', 'fastapi', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_documentation_of_the_client_is_true(address: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
    (code,) = (
        block for block in re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "hire.Client" in block
    )
    assert "http://127.0.0.1:8000" in code and TOKEN in code
    exec(code.replace("http://127.0.0.1:8000", address), {})
