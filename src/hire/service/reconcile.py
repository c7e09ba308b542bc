"""Reconciliation of names with entities, following the specification of the W3C community group, version 0.2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hire.data.iri import PREFIX
from hire.errors import HireError
from hire.inference.model import TrainedModel
from hire.service.relations import StoredRelation
from hire.service.service import Service

TAUGHT = "taught:"  # before the id of a taught relation, among properties
ENTITY_TYPE = {"id": "entity", "name": "Entity"}  # of entities without a type
CONSIDERED = 50  # matches of a name that are compared by type and properties
NAME_SHARE = 0.7  # of a score, if there are properties to compare too
PREVIEW_FACTS = 6
PROPERTIES = 50
PREVIEW_SIZE = {"width": 420, "height": 240}


class PropertyValue(BaseModel):
    """A property that an entity should have, and its value or values."""

    model_config = ConfigDict(extra="ignore")
    pid: str
    v: Any = None


class Query(BaseModel):
    """A name to be matched."""

    model_config = ConfigDict(extra="ignore")
    query: str = Field(default="", max_length=1_000)
    type: str | list[str] | None = None
    limit: int = Field(default=5, ge=1, le=100)
    properties: list[PropertyValue] = Field(default=[], max_length=50)
    type_strict: str | None = None


class ExtendProperty(BaseModel):
    """A property to fetch."""

    id: str
    settings: dict[str, Any] = {}


class ExtendRequest(BaseModel):
    """Entities, and the properties to fetch for them."""

    ids: list[str] = Field(max_length=1_000)
    properties: list[ExtendProperty] = Field(max_length=20)


class Reconciler:
    """Matches names with entities of the served graph, and extends them by facts, known and predicted."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @property
    def model(self) -> TrainedModel:
        """The model whose graph is served."""
        return self.service.teaching.model

    def manifest(self, base: str) -> dict[str, Any]:
        """What the service offers, and where."""
        graph = self.model.dataset.graph

        def at(path: str) -> dict[str, str]:
            return {"service_url": base, "service_path": path}

        return {
            "versions": ["0.2"],
            "name": f"HiRe: {self.model.dataset.name}",
            "identifierSpace": PREFIX,
            "schemaSpace": PREFIX,
            "defaultTypes": [ENTITY_TYPE] if graph.types is None else [],
            "view": {"url": f"{base}/preview?id={{{{id}}}}"},
            "preview": {"url": f"{base}/preview?id={{{{id}}}}", **PREVIEW_SIZE},
            "suggest": {
                "entity": at("/suggest/entity"),
                "property": at("/suggest/property"),
                "type": at("/suggest/type"),
            },
            "extend": {
                "propose_properties": at("/properties"),
                "property_settings": [
                    _setting("limit", "Limit", 5, "At most so many values; 0 for all"),
                    _setting("threshold", "Threshold", 0.9, "For taught relations: the lowest confidence of a value"),
                ],
            },
        }

    def match(self, queries: Mapping[str, Query]) -> dict[str, Any]:
        """The candidates for each name, best first."""
        return {name: {"result": self._candidates(query)} for name, query in queries.items()}

    def _candidates(self, query: Query) -> list[dict[str, Any]]:
        graph = self.model.dataset.graph
        wanted = [query.type] if isinstance(query.type, str) else query.type or []
        wanted = [each for each in wanted if each != ENTITY_TYPE["id"]]
        found = []
        for entity in self.model.names.search(query.query, max(query.limit, CONSIDERED)):
            types = self._types(entity)
            if wanted and not any(each["id"] in wanted for each in types) and query.type_strict != "any":
                continue
            name, shares = self._similarity(query.query, entity), self._shared(entity, query.properties)
            score = name if shares is None else NAME_SHARE * name + (1 - NAME_SHARE) * shares
            found.append(
                {
                    "id": graph.entities[entity],
                    "name": graph.label(entity),
                    "type": types or [ENTITY_TYPE],
                    "score": round(100 * score, 1),
                    "match": False,
                    "features": [{"id": "name_similarity", "value": round(100 * name, 1)}]
                    + ([] if shares is None else [{"id": "shared_properties", "value": round(100 * shares, 1)}]),
                }
            )
        found.sort(key=lambda each: -each["score"])
        sure = len(found) == 1 or (len(found) > 1 and found[0]["score"] > found[1]["score"])
        if found and sure and found[0]["score"] >= 100:
            found[0]["match"] = True
        return found[: query.limit]

    def _similarity(self, text: str, entity: int) -> float:
        graph = self.model.dataset.graph
        wanted = _folded(text)
        names = {_folded(graph.entities[entity]), _folded(graph.label(entity))}
        return max(1.0 if name == wanted else 0.99 * SequenceMatcher(None, wanted, name).ratio() for name in names)

    def _shared(self, entity: int, properties: Sequence[PropertyValue]) -> float | None:
        """The share of properties whose value the entity has; None if there are none to compare."""
        if not properties:
            return None
        graph = self.model.dataset.graph
        shared = 0
        for each in properties:
            relation = graph.relations.find(each.pid)
            if relation is None:
                continue
            tails = self.model.dataset.facts.tails(entity, relation).tolist()
            names = {_folded(name) for tail in tails for name in (graph.entities[tail], graph.label(tail))}
            shared += bool(names & {_folded(value) for value in _values(each.v)})
        return shared / len(properties)

    def _types(self, entity: int) -> list[dict[str, str]]:
        types = self.model.dataset.graph.types
        names = [] if types is None else [types.names[int(each)] for each in types.of_entity(entity)]
        return [{"id": name, "name": name} for name in names]

    def suggest_entities(self, prefix: str, cursor: int) -> dict[str, Any]:
        """Entities whose name begins with a text, or resembles it."""
        found = self.model.search(prefix, cursor + 10)[cursor:]
        graph = self.model.dataset.graph
        return {
            "result": [
                {
                    "id": match.entity,
                    "name": match.label,
                    "notable": self._types(graph.entities.id(match.entity)),
                }
                for match in found
            ]
        }

    def suggest_types(self, prefix: str) -> dict[str, Any]:
        """Types whose name contains a text."""
        types = self.model.dataset.graph.types
        names: Iterable[str] = [ENTITY_TYPE["id"]] if types is None else types.names
        return {"result": _containing(({"id": name, "name": name} for name in names), prefix)}

    def suggest_properties(self, prefix: str) -> dict[str, Any]:
        """Properties whose name contains a text."""
        return {"result": _containing(self._properties(), prefix)}

    def propose(self, limit: int) -> list[dict[str, str]]:
        """Properties to extend entities by: taught relations, then those of the graph, most frequent first."""
        return self._properties()[: limit or PROPERTIES]

    def _properties(self) -> list[dict[str, str]]:
        graph = self.model.dataset.graph
        taught = [
            {"id": f"{TAUGHT}{relation.id}", "name": f"{relation.name} (taught)"}
            for relation, _ in self.service.relations.page(PROPERTIES)
            if relation.graph is None
        ]
        order = sorted(graph.background_relations.tolist(), key=lambda relation: -graph.edge_counts[relation])
        return taught + [{"id": graph.relations[each], "name": graph.relations[each]} for each in order]

    def extend(self, request: ExtendRequest) -> dict[str, Any]:
        """Values of properties for entities."""
        meta = []
        rows: dict[str, dict[str, Any]] = {name: {} for name in request.ids}
        for each in request.properties:
            values, name = self._values_of(each, request.ids)
            meta.append({"id": each.id, "name": name, "type": ENTITY_TYPE})
            for entity, found in values.items():
                refs = map(self.service.teaching.ref, found)
                rows[entity][each.id] = [{"id": ref.id, "name": ref.label} for ref in refs]
        return {"meta": meta, "rows": rows}

    def _values_of(self, wanted: ExtendProperty, ids: Sequence[str]) -> tuple[dict[str, list[str]], str]:
        limit = _number(wanted.settings.get("limit"), 5) or None
        graph = self.model.dataset.graph
        known = [name for name in ids if graph.entities.find(name) is not None]
        found: dict[str, list[str]] = {name: [] for name in ids}
        if wanted.id.startswith(TAUGHT):
            relation = self.service.relations.get(wanted.id.removeprefix(TAUGHT))
            threshold = min(1.0, max(0.0, _number(wanted.settings.get("threshold"), 0.9)))
            found |= self._predicted(relation, known, threshold)
            name = relation.name
        else:
            edge_type = graph.relations.id(wanted.id)
            name = wanted.id
            for each in known:
                tails = self.model.dataset.facts.tails(graph.entities.id(each), edge_type)
                found[each] = [graph.entities[int(tail)] for tail in tails]
        return {each: values[: None if limit is None else int(limit)] for each, values in found.items()}, name

    def _predicted(self, relation: StoredRelation, heads: list[str], threshold: float) -> dict[str, list[str]]:
        """The known and the accepted tails of heads, then those predicted with at least a confidence."""
        teaching = self.service.teaching
        found = {}
        for head, answers in teaching.answers_to_many(relation, heads, 10, threshold=threshold):
            with self.service.store.reading() as connection:
                judged = dict(
                    connection.execute(
                        "SELECT tail, verdict FROM judged WHERE relation = ? AND head = ?", (relation.id, head)
                    ).fetchall()
                )
            sure = [tail for tail, verdict in judged.items() if verdict == "accept"]
            predicted = [answer.tail for answer in answers if answer.tail not in judged]
            found[head] = list(dict.fromkeys([*teaching.known_tails(relation, head), *sure, *predicted]))
        return found

    def preview(self, name: str) -> str:
        """A small page about an entity."""
        graph = self.model.dataset.graph
        entity = graph.entities.id(self.service.teaching.resolved(name))
        facts = []
        count = len(graph.relations)
        for kind, other in graph.neighbors_of(entity, PREVIEW_FACTS).tolist():
            arrow = "←" if kind >= count else "→"
            facts.append(f"<li>{escape(graph.relations[kind % count])} {arrow} {escape(graph.label(other))}</li>")
        types = ", ".join(each["name"] for each in self._types(entity))
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(graph.label(entity))}</title></head><body>"
            f"<h1>{escape(graph.label(entity))}</h1><p>{escape(graph.entities[entity])}"
            f"{' · ' + escape(types) if types else ''}</p><ul>{''.join(facts)}</ul></body></html>"
        )


def _setting(name: str, label: str, default: float, help_text: str) -> dict[str, Any]:
    return {"name": name, "label": label, "type": "number", "default": default, "help_text": help_text}


def _containing(found: Iterable[dict[str, str]], prefix: str) -> list[dict[str, str]]:
    wanted = _folded(prefix)
    matching = [each for each in found if wanted in _folded(each["name"])]
    return sorted(matching, key=lambda each: not _folded(each["name"]).startswith(wanted))[:PROPERTIES]


def _folded(text: str) -> str:
    return text.strip().lower().replace("_", " ")


def _values(value: Any) -> list[str]:
    """The texts of a property's value: a text, a number, an entity with an id, or several of them."""
    if isinstance(value, list):
        return [text for each in value for text in _values(each)]
    if isinstance(value, Mapping):
        return [str(value[key]) for key in ("id", "name") if key in value]
    return [] if value is None else [str(value)]


def _number(value: Any, default: float) -> float:
    if value in (None, ""):
        return default
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise HireError(f"{value!r} is not a number", remedy="give a number in the settings") from error
