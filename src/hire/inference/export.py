"""Facts as lines of N-Triples or TSV: the same bytes from the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from hire.data.iri import PREFIX, check_prefix, iri_of

ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})

Fact = tuple[str, str, str]  # head, relation, tail


def to_ntriples(facts: Iterable[Fact], prefix: str = PREFIX) -> str:
    """Facts as N-Triples; `hire.data.iri` says which IRI a name has."""
    check_prefix(prefix)
    return "".join(f"{' '.join(f'<{iri_of(name, prefix)}>' for name in fact)} .\n" for fact in facts)


def to_tsv(rows: Iterable[Iterable[str]]) -> str:
    """Rows of tab-separated cells; a tab or a line break within a cell is written as \\t, \\n or \\r."""
    return "".join("\t".join(cell.translate(ESCAPES) for cell in row) + "\n" for row in rows)
