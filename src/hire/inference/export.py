"""Facts as files: the same bytes from the command line and over HTTP, and the same IRIs in every RDF format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from hire.data.iri import PREFIX, check_prefix, iri_of, is_iri
from hire.errors import HireError

ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
LITERAL_ESCAPES = ESCAPES | str.maketrans({"\\": "\\\\", '"': '\\"'})
WIKIDATA_ENTITY, WIKIDATA_PROPERTY = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
PROPERTY = re.compile(r"P[1-9][0-9]*")
ITEM = re.compile(r"[QPL][1-9][0-9]*")
FACTS_AT_ONCE = 5_000  # of one SPARQL update

Fact = tuple[str, str, str]  # head, relation, tail


class Provenance(NamedTuple):
    """Where an accepted fact comes from."""

    by: str  # who accepted it
    at: str  # when, as xsd:dateTime
    model: str  # which suggested it
    confidence: float | None  # at that time


def predicate_name(predicate: str | None, name: str) -> str:
    """What a relation is called in RDF: its predicate, which may be a property of Wikidata, or else its name."""
    if predicate is not None and PROPERTY.fullmatch(predicate):
        return WIKIDATA_PROPERTY + predicate
    return predicate or name


def check_predicate(predicate: str) -> None:
    """Raise unless a predicate is an IRI or a property of Wikidata."""
    if not PROPERTY.fullmatch(predicate) and not is_iri(predicate):
        raise HireError(
            f"the predicate {predicate!r} is neither an IRI nor a property of Wikidata",
            remedy="give one such as http://purl.org/dc/terms/isPartOf or P361, or none",
        )


def to_ntriples(facts: Iterable[Fact], prefix: str = PREFIX) -> str:
    """Facts as N-Triples; `hire.data.iri` says which IRI a name has."""
    check_prefix(prefix)
    return "".join(f"{_triple(fact, prefix)} .\n" for fact in facts)


def _triple(fact: Fact, prefix: str = PREFIX) -> str:
    return " ".join(f"<{iri_of(name, prefix)}>" for name in fact)


def to_tsv(rows: Iterable[Iterable[str]]) -> str:
    """Rows of tab-separated cells; a tab or a line break within a cell is written as \\t, \\n or \\r."""
    return "".join("\t".join(cell.translate(ESCAPES) for cell in row) + "\n" for row in rows)


def to_turtle(facts: Iterable[tuple[Fact, Provenance]], prefix: str = PREFIX) -> Iterator[str]:
    """Facts as Turtle, each with a statement by PROV of who accepted it, when, and which model suggested it."""
    check_prefix(prefix)
    yield (
        "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .\n"
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        "@prefix prov: <http://www.w3.org/ns/prov#> .\n"
        "@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .\n"
        "@prefix hire: <urn:hire-vocabulary:> .\n"
    )
    agents: dict[tuple[str, str], str] = {}
    for fact, how in facts:
        for kind, label in (("person", how.by), ("model", how.model)):
            if (kind, label) not in agents:
                agents[kind, label] = f"_:{kind}{len(agents)}"
                role = "Person" if kind == "person" else "SoftwareAgent"
                yield f'\n{agents[kind, label]} a prov:{role} ; rdfs:label "{_literal(label)}" .\n'
        head, relation, tail = (f"<{iri_of(name, prefix)}>" for name in fact)
        confidence = "" if how.confidence is None else f' ;\n  hire:confidence "{how.confidence:.6f}"^^xsd:decimal'
        yield (
            f"\n{head} {relation} {tail} .\n"
            f"[] a rdf:Statement, prov:Entity ;\n"
            f"  rdf:subject {head} ; rdf:predicate {relation} ; rdf:object {tail} ;\n"
            f"  prov:wasAttributedTo {agents['person', how.by]}, {agents['model', how.model]} ;\n"
            f'  prov:generatedAtTime "{_literal(how.at)}"^^xsd:dateTime{confidence} .\n'
        )


def _literal(text: str) -> str:
    return text.translate(LITERAL_ESCAPES)


def to_quickstatements(facts: Iterable[Fact], predicate: str | None) -> str:
    """Facts as QuickStatements of Wikidata; an error if something in them has no id there."""
    if predicate is None or not PROPERTY.fullmatch(predicate.removeprefix(WIKIDATA_PROPERTY)):
        raise HireError("the relation has no property of Wikidata", remedy="set its predicate, such as P361")
    rows = [(_item(head), predicate.removeprefix(WIKIDATA_PROPERTY), _item(tail)) for head, _, tail in facts]
    return to_tsv(rows)


def _item(name: str) -> str:
    item = re.sub("^https?://www.wikidata.org/(entity|wiki)/", "", name).removeprefix("wd:")
    if not ITEM.fullmatch(item):
        raise HireError(f"{name!r} has no id of Wikidata", remedy="export as TSV or RDF instead")
    return item


def sparql_updates(facts: Iterable[Fact], graph: str | None = None, prefix: str = PREFIX) -> Iterator[str]:
    """Facts as SPARQL updates, each of a size that endpoints take, into the default graph or a named one."""
    check_prefix(prefix)
    if graph is not None and not is_iri(graph):
        raise HireError(f"the graph {graph!r} is not an IRI", remedy="give one such as http://example.org/graph")
    remaining = iter(facts)
    while some := list(islice(remaining, FACTS_AT_ONCE)):
        triples = "".join(f"  {_triple(fact, prefix)} .\n" for fact in some)
        yield f"INSERT DATA {{ GRAPH <{graph}> {{\n{triples}}} }} ;\n" if graph else f"INSERT DATA {{\n{triples}}} ;\n"
