"""A model behind hire serve, with the methods of a model in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hire.client.connection import Connection, Json, lines
from hire.client.relation import RemoteRelation
from hire.errors import HireError
from hire.inference.answers import UNNAMED, Direction, Match


class Event(NamedTuple):
    """A change that a service tells of."""

    id: int
    kind: str
    data: Json


class Client:
    """A model on a service; relations that are taught to it are stored there, and shared with its other users."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        by: str = "anonymous",
        seconds: float = 60.0,
        graph: str | None = None,
    ) -> None:
        self.connection = Connection(url, token, by, seconds)
        self.graph = graph  # with new entities; see with_entities

    def __repr__(self) -> str:
        return f"<Client {self.connection.url}>"

    def teach(
        self,
        references: Iterable[tuple[str, str]],
        name: str | None = None,
        *,
        candidates: Iterable[str] | None = None,
        predicate: str | None = None,
        scope: Mapping[str, Any] | None = None,
    ) -> RemoteRelation:
        """Learn a relation from (head, tail) examples, entities by id or label; it is stored on the service."""
        body = {
            "name": name or UNNAMED,
            "references": [{"head": head, "tail": tail} for head, tail in references],
            "candidates": None if candidates is None else list(candidates),
            "predicate": predicate,
            "scope": dict(scope or {"kind": "similar"}),
            "graph": self.graph,
            "by": self.connection.by,
        }
        return RemoteRelation(self.connection, self.connection.call("POST", "/relations", body))

    def relations(self) -> list[RemoteRelation]:
        """The relations on the service, newest first."""
        return [RemoteRelation(self.connection, found) for found in self.connection.pages("/relations", "relations")]

    def relation(self, name: str) -> RemoteRelation:
        """A relation by id or, if just one has it, by name."""
        found = [relation for relation in self.relations() if name in (relation.id, relation.name)]
        if len(found) != 1:
            many = "several relations are called" if found else "there is no relation"
            raise HireError(f"{many} {name!r}", remedy="see client.relations() for their ids")
        return found[0]

    def search(self, text: str, k: int = 10) -> list[Match]:
        """At most k entities whose id or label is a text, begins with it, contains it or resembles it, best first."""
        found = self.connection.call("GET", "/entities", query={"q": text, "k": k, "graph": self.graph})
        return [Match(match["id"], match["label"]) for match in found["matches"]]

    def with_entities(self, entities: Mapping[str, Iterable[tuple[str, str, Direction]]]) -> Client:
        """The same service with new entities, each given with a few facts of its own, for what is taught afterwards."""
        if self.graph is not None:
            raise HireError("new entities are added at once", remedy="give all of them to a single with_entities")
        body = {"entities": {name: [list(fact) for fact in facts] for name, facts in entities.items()}}
        graph = self.connection.call("POST", "/graphs", body)["id"]
        known = self.connection
        return Client(known.url, known.token, by=known.by, seconds=known.seconds, graph=graph)

    def about(self) -> Json:
        """What is being served."""
        return self.connection.call("GET", "/graph")

    def examples(self) -> list[Json]:
        """Relations of the graph to try."""
        found: list[Json] = self.connection.call("GET", "/examples")["examples"]
        return found

    def entity(self, name: str) -> Json:
        """What the graph says of an entity."""
        return self.connection.call("GET", "/entities/detail", query={"id": name, "graph": self.graph})

    def neighbors(self, name: str) -> Iterator[Json]:
        """The facts of an entity."""
        return self.connection.pages(
            "/entities/neighbors", "neighbors", {"id": name, "graph": self.graph, "limit": 200}
        )

    def events(self, relation: str | None = None, last: int | None = None) -> Iterator[Event]:
        """Changes as they happen, after the last event that was seen; without end."""
        headers = {"last-event-id": str(last)} if last is not None else {}
        answer = self.connection.send("GET", "/events", None, {"relation": relation}, headers, stream=True)
        fields: dict[str, str] = {}
        for line in lines(answer):
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                fields = {}
