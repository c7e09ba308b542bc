"""Names as IRIs and back: one rule for everything that is exported as RDF, and its inverse for reading.

A name is an IRI if it is valid (RFC 3987) and begins with `scheme://` or `urn:namespace:`, as in
`http://example.org/rome` or `urn:isbn:0451450523`. Any other name is percent-encoded after a prefix:
`concept:city:rome` is a name of NELL's, not an IRI, and becomes `urn:hire:concept%3Acity%3Arome`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from pyoxigraph import NamedNode

from hire.errors import HireError

PREFIX = "urn:hire:"  # only percent-encoded names begin with it, so that no two names have the same IRI
SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*://|urn:[a-z0-9][a-z0-9-]{0,31}:)", re.ASCII | re.IGNORECASE)
UNREADABLE = frozenset("\t\n\r\0")  # no name in a dataset has these


def is_iri(name: str) -> bool:
    """Whether a name is an absolute IRI, rather than a name with a colon in it."""
    scheme = SCHEME.match(name)
    return scheme is not None and scheme.end() < len(name) and _is_valid(name)


@lru_cache(1 << 16)
def iri_of(name: str, prefix: str = PREFIX) -> str:
    """The name itself if it is an IRI, otherwise the prefix and the percent-encoded name."""
    return name if is_iri(name) and not name.startswith(PREFIX) else prefix + quote(name, safe="")


def name_of(iri: str) -> str:
    """The name that `iri_of` turned into an IRI with the default prefix; any other IRI is its own name."""
    if not iri.startswith(PREFIX):
        return iri
    try:
        name = unquote(iri.removeprefix(PREFIX), errors="strict")
    except UnicodeDecodeError:
        return iri
    return name if name and iri_of(name) == iri and not UNREADABLE & set(name) else iri


def check_prefix(prefix: str) -> None:
    """Raise unless a prefix and a percent-encoded name make an IRI."""
    if not _is_valid(f"{prefix}x"):
        raise HireError(f"the prefix {prefix!r} is not the beginning of an IRI", remedy=f"use one such as {PREFIX}")


def _is_valid(iri: str) -> bool:
    try:
        NamedNode(iri)
    except ValueError:
        return False
    return True
