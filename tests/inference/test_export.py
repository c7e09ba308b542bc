from __future__ import annotations

from pyoxigraph import RdfFormat, parse

from hire.inference.export import to_ntriples, to_tsv


def test_facts_become_ntriples() -> None:
    assert to_ntriples([("http://example.org/a", "part of", "concept:city:rome")], "https://example.org/") == (
        "<http://example.org/a> <https://example.org/part%20of> <https://example.org/concept%3Acity%3Arome> .\n"
    )
    assert to_ntriples([]) == ""


def test_any_name_can_be_exported() -> None:
    names = ["http://example.org/a", "http://example.org/<b>", "tab\tline\n\u2028é", "urn:isbn:1"]
    facts = [(name, name, name) for name in names]
    found = [triple.subject.value for triple in parse(to_ntriples(facts), RdfFormat.N_TRIPLES)]
    assert found[0] == names[0] and found[3] == names[3] and len(set(found)) == 4
    assert to_tsv(facts[2:3]) == "\t".join(["tab\\tline\\n\u2028é"] * 3) + "\n"
