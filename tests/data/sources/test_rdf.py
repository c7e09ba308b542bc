import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hire import progress
from hire.data.sources.columns import Columns, TripleTable
from hire.data.sources.rdf import FORMATS, ROWS_PER_BATCH, read_rdf
from hire.errors import HireError

E = "http://e/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"

NTRIPLES = f"""\
<{E}a> <{E}knows> <{E}b> .
<{E}a> <{RDF}type> <{E}Person> .
<{E}a> <{RDFS}label> "Anna"@en .
<{E}a> <{E}age> "42" .
_:x <{E}knows> _:y .
"""
DOCUMENTS = {
    "ntriples": NTRIPLES,
    "nquads": NTRIPLES.replace("b> .", f"b> <{E}graph> ."),
    "turtle": f"""\
@prefix e: <{E}> . @prefix rdfs: <{RDFS}> .
e:a e:knows e:b ; a e:Person ; rdfs:label "Anna"@en ; e:age 42 . [] e:knows [] .
""",
    "trig": f"""\
PREFIX e: <{E}> PREFIX rdfs: <{RDFS}>
e:graph {{ e:a e:knows e:b }} e:a a e:Person ; rdfs:label "Anna"@en ; e:age 42 . [] e:knows [] .
""",
    "rdfxml": f"""\
<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="{RDF}" xmlns:rdfs="{RDFS}" xmlns:e="{E}">
<e:Person rdf:about="{E}a"><e:knows rdf:resource="{E}b"/><rdfs:label xml:lang="en">Anna</rdfs:label><e:age>42</e:age>
</e:Person>
<rdf:Description><e:knows rdf:nodeID="y"/></rdf:Description>
</rdf:RDF>
""",
}


def rows(columns: Columns) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in columns.arrays()), strict=True))


def read(directory: Path, text: str | bytes, format: str = "turtle", source_number: int = 0) -> TripleTable:
    path = directory / "input"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_rdf(path, format, source_number)


def refusal(directory: Path, text: str | bytes, format: str = "turtle") -> HireError:
    with pytest.raises(HireError) as caught:
        read(directory, text, format)
    assert caught.value.problems[0].file == str(directory / "input")
    assert caught.value.problems[0].remedy
    return caught.value


def compressed(text: str, suffix: str) -> bytes:
    return bytes(pa.compress(text.encode(), {".gz": "gzip", ".zst": "zstd"}[suffix], asbytes=True))


@pytest.mark.parametrize("format", DOCUMENTS)
def test_every_format_gives_the_same_table(tmp_path: Path, format: str) -> None:
    table = read(tmp_path, DOCUMENTS[format], format, source_number=3)
    assert rows(table.triples) == [(f"{E}a", f"{E}knows", f"{E}b"), ("_:b3.0", f"{E}knows", "_:b3.1")]
    assert rows(table.types) == [(f"{E}a", f"{E}Person")]
    assert rows(table.labels) == [(f"{E}a", "Anna")]
    assert table.skipped == {"literal objects": 1}
    assert table.source == str(tmp_path / "input")


def test_formats_cover_every_parser() -> None:
    assert set(FORMATS.values()) == set(DOCUMENTS)
    assert all(suffix.startswith(".") for suffix in FORMATS)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("format", ["ntriples", "rdfxml"])
def test_compressed_files(tmp_path: Path, suffix: str, format: str) -> None:
    path = tmp_path / f"input{suffix}"
    path.write_bytes(compressed(DOCUMENTS[format], suffix))
    assert rows(read_rdf(path, format).labels) == [(f"{E}a", "Anna")]


@pytest.mark.parametrize("format", DOCUMENTS)
def test_a_truncated_archive_is_told(tmp_path: Path, format: str) -> None:
    path = tmp_path / "input.gz"
    path.write_bytes(gzip.compress(DOCUMENTS[format].encode() + b"\n" * 1000)[:-12])
    with pytest.raises(HireError, match="truncated or corrupt") as caught:
        read_rdf(path, format)
    assert caught.value.problems[0].file == str(path)


def test_more_rows_than_a_batch_keep_their_order(tmp_path: Path) -> None:
    count = 2 * ROWS_PER_BATCH + 1
    table = read(tmp_path, "".join(f"<{E}{i}> <{E}r> <{E}{i + 1}> .\n" for i in range(count)), "ntriples")
    assert rows(table.triples) == [(f"{E}{i}", f"{E}r", f"{E}{i + 1}") for i in range(count)]


def test_blank_nodes_are_named_by_first_appearance(tmp_path: Path) -> None:
    text = f"<{E}a> <{E}r> [ <{E}r> _:z ] . _:z <{E}r> (<{E}b>) ."
    tables = [read(tmp_path, text, source_number=7) for _ in range(2)]
    assert rows(tables[0].triples) == rows(tables[1].triples)
    names = [name for row in rows(tables[0].triples) for name in row if name.startswith("_:")]
    assert list(dict.fromkeys(names)) == [f"_:b7.{n}" for n in range(3)]


def test_labels_of_one_language_on_one_line(tmp_path: Path) -> None:
    text = f"""<{E}a> <{RDFS}label> "plain", "British"@en-GB, "English"@EN, "Deutsch"@de, "Middle"@enm ;
        <{RDFS}label> "two\\n\\t  lines\\u0000\\u0085 ", " \\n " ; <{E}name> "no label"@en ."""
    table = read(tmp_path, text)
    assert rows(table.labels) == [(f"{E}a", label) for label in ("plain", "British", "English", "two lines")]
    assert table.skipped == {"labels in other languages": 2, "empty labels": 1, "literal objects": 1}
    german = read_rdf(tmp_path / "input", "turtle", language="DE")
    assert [label for _, label in rows(german.labels)] == ["plain", "Deutsch", "two lines"]


def test_labels_and_types_that_are_no_such_thing_stay_triples(tmp_path: Path) -> None:
    table = read(tmp_path, f"<{E}a> <{RDFS}label> <{E}b> ; a _:c .")
    assert rows(table.triples) == [
        (f"{E}a", f"{RDFS}label", f"{E}b"),
        (f"{E}a", f"{RDF}type", "_:b0.0"),
    ]
    assert not len(table.labels)
    assert not len(table.types)


@pytest.mark.parametrize("text", [f"<{E}a> <{RDFS}label> 'A' .", f"<{E}a> a <{E}T> ."])
def test_a_file_of_labels_or_types_alone_is_read(tmp_path: Path, text: str) -> None:
    assert not len(read(tmp_path, text).triples)


def test_quoted_triples_are_counted(tmp_path: Path) -> None:
    quoted = f"<{E}s> <{E}r> <<( <{E}a> <{E}r> <{E}b> )>> .\n"
    table = read(tmp_path, NTRIPLES + quoted * 3000, "ntriples")
    assert table.skipped["quoted triples"] == 3000
    assert len(table.triples) == 2


@pytest.mark.parametrize("format", ["ntriples", "nquads", "turtle", "trig"])
def test_deeply_nested_quoted_triples_are_refused(tmp_path: Path, format: str) -> None:
    # The parser itself survives this depth, not ten times as many: this test must fail, not crash.
    quoted = f"<<( <{E}a> <{E}r> " * 5000 + f"<{E}b>" + " )>>" * 5000
    assert "more than 1000 levels deep" in str(refusal(tmp_path, f"<{E}s> <{E}r> {quoted} .", format))


def test_deeply_nested_blank_nodes_are_read(tmp_path: Path) -> None:
    text = f"<{E}s> <{E}r> " + f"[ <{E}r> " * 20_000 + f"<{E}o>" + "]" * 20_000 + "."
    assert len(read(tmp_path, text).triples) == 20_001


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    for format, text in DOCUMENTS.items():
        assert len(read(tmp_path, b"\xef\xbb\xbf" + text.encode(), format).triples) == 2


@pytest.mark.parametrize("format", ["ntriples", "nquads", "turtle", "trig"])
def test_errors_name_the_line(tmp_path: Path, format: str) -> None:
    good = f"<{E}a> <{E}r> <{E}b> .\n"
    for bad in (b"\xff\xfe", b"<relative> <http://e/r> <http://e/b> .", b"<http://e/a> <http://e/r> <http", b"<a/>"):
        assert refusal(tmp_path, good.encode() * 2 + bad, format).problems[0].line == 3


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("</rdf:RDF>\n", "", 6),  # ends too early
        ("<e:age>", "<e:old>", 3),
        ("Anna", "\x01", 3),
        ('<?xml version="1.0"?>', f"{E}a {E}r {E}b", 1),  # another format
    ],
)
def test_xml_that_is_not_well_formed_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    error = refusal(tmp_path, DOCUMENTS["rdfxml"].replace(old, new), "rdfxml")
    assert "not well-formed" in str(error)
    assert error.problems[0].line == line


@pytest.mark.parametrize(("old", "new"), [(f"{E}b", "b"), ("xmlns:e=", "xmlns:f=")])
def test_xml_that_is_no_rdf_is_told(tmp_path: Path, old: str, new: str) -> None:
    assert "RDF/XML" in str(refusal(tmp_path, DOCUMENTS["rdfxml"].replace(old, new), "rdfxml"))


def test_xml_entities_cannot_blow_up(tmp_path: Path) -> None:
    bomb = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    text = DOCUMENTS["rdfxml"].replace("<rdf:RDF", f'<!DOCTYPE rdf:RDF [<!ENTITY l0 "aaaaaaaaaa">{bomb}]><rdf:RDF')
    assert "amplification" in str(refusal(tmp_path, text.replace("Anna", "&l9;"), "rdfxml"))


def test_error_messages_stay_on_one_line(tmp_path: Path) -> None:
    assert "\n" not in str(refusal(tmp_path, b"<http://e/\\u000A> <http://e/r> <http://e/b> .", "ntriples"))


@pytest.mark.parametrize("format", DOCUMENTS)
def test_a_file_without_triples_is_an_error(tmp_path: Path, format: str) -> None:
    assert "contains no triples" in str(refusal(tmp_path, "", format))
    if format != "rdfxml":
        assert "contains no triples" in str(refusal(tmp_path, f'# nothing\n<{E}a> <{E}r> "A" .\n', format))


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="no such file"):
        read_rdf(tmp_path / "missing.nt", "ntriples")
    with pytest.raises(HireError, match="directory"):
        read_rdf(tmp_path, "ntriples")
    with pytest.raises(HireError, match="unknown RDF format 'n3'") as caught:
        read_rdf(tmp_path / "input.n3", "n3")
    assert "turtle" in str(caught.value.problems[0].remedy)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_progress_is_told_in_bytes(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"name.nt{suffix}"
    path.write_bytes(compressed(NTRIPLES, ".gz") if suffix else NTRIPLES.encode())
    monkeypatch.setattr(progress, "_shown", True)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    read_rdf(path, "ntriples")
    assert f"Reading {path.name}: {len(NTRIPLES) if suffix else '100%'}" in capsys.readouterr().err


def mutated(document: str) -> st.SearchStrategy[bytes]:
    """The document with a few stretches replaced by bytes that matter to the parsers, or by any."""
    text = document.encode()
    pieces = st.sampled_from(
        [b"<", b">", b'"', b"<<(", b")>>", b"[", b"{", b"&#0;", b"\\u", b"_:", b"@", b"\n", b"<a>"]
    )
    edits = st.lists(
        st.tuples(st.integers(0, len(text)), st.integers(0, 20), pieces | st.binary(max_size=4)), max_size=3
    )

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        result = text
        for start, length, piece in edits:
            result = result[:start] + piece + result[start + length :]
        return result

    return edits.map(apply)


@pytest.mark.parametrize("format", DOCUMENTS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_give_a_table_or_an_error_for_people(tmp_path: Path, format: str, data: st.DataObject) -> None:
    documents = st.sampled_from(list(DOCUMENTS.values())).flatmap(mutated)
    try:
        table = read(tmp_path, data.draw(mutated(DOCUMENTS[format]) | documents | st.binary(max_size=60)), format)
    except HireError:
        return
    assert len(table.triples) or len(table.labels) or len(table.types)
