from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hire.data.sources.columns import TripleTable
from hire.data.sources.delimited import TableFormat, read_pairs, read_triples
from hire.errors import HireError, Problem
from hire.util import files

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: bytes, name: str = "graph.tsv") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_file


def rows(table: TripleTable) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in table.triples.arrays()), strict=True))


def lines(table: TripleTable) -> list[int]:
    assert table.lines is not None
    return [int(line) for line in table.lines]


def read_csv(path: Path, **options: Any) -> TripleTable:
    return read_triples(path, TableFormat(",", **options))


def test_tab_separated(write: Write) -> None:
    table = read_triples(write(b"a\tb\tc\n d \te\tf\xc3\x9f"), TableFormat())
    assert rows(table) == [("a", "b", "c"), (" d ", "e", "fß")]
    assert lines(table) == [1, 2] and table.notes == []


def test_a_byte_order_mark_crlf_and_blank_lines_are_mended_and_noted(write: Write) -> None:
    path = write(b"\xef\xbb\xbfa\tb\tc\r\n\r\nd\te\tf\r\n\n")
    table = read_triples(path, TableFormat())
    assert rows(table) == [("a", "b", "c"), ("d", "e", "f")] and lines(table) == [1, 3]
    assert [(note.file, note.line) for note in table.notes] == [(str(path), 1), (str(path), 1)]
    assert "byte order mark" in table.notes[0].message and "CRLF" in table.notes[1].message
    assert table.skipped == {"blank lines": 2}


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"a\tb\tc\nd\te\n", 2, "expected 3 columns, found 2"),
        (b"a\tb\tc\nd\te\tf\tg\n", 2, "expected 3 columns, found 4"),
        (b"a b c\n", 1, "expected 3 columns, found 1"),
        (b"a\tb\tc\n\nd\t\tf\n", 3, "column 2 is empty"),
        (b"a\tb\tc\nd\te\t\xff\n", 2, "invalid UTF-8 at byte 5"),
        (b"\xff\xfea\0\t\0b\0", 1, "invalid UTF-8"),
        (b"a\tb\tc\nd\0\te\tf\n", 2, "a NUL character"),
        (b"a\tb\tc\nd\re\tf\tg\n", 2, "a carriage return"),
        (b"", None, "is empty"),
        (b"\n\n", None, "is empty"),
        (b"head\trelation\ttail\n", None, "contains no triples"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, content: bytes, line: int | None, message: str) -> None:
    path = write(content)
    with pytest.raises(HireError) as caught:
        read_triples(path, TableFormat())
    (problem,) = caught.value.problems
    assert message in problem.message and problem.line == line and problem.file == str(path)
    assert problem.remedy


def test_all_problems_can_be_collected(write: Write) -> None:
    problems: list[Problem] = []
    path = write(b"a\tb\tc\nd\te\n\xff\tx\ty\nd\t\tf\nd\te\tf\n")
    table = read_triples(path, TableFormat(), problems)
    assert rows(table) == [("a", "b", "c"), ("d", "e", "f")] and lines(table) == [1, 5]
    assert sorted(problem.line or 0 for problem in problems) == [2, 3, 4]


def test_lines_are_counted_across_blocks(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 7)
    good = b"".join(b"h%d\tr\tt%d\n" % (i, i) for i in range(50))
    assert lines(read_triples(write(good), TableFormat())) == list(range(1, 51))
    with pytest.raises(HireError) as caught:
        read_triples(write(good + b"wrong\n" + good), TableFormat())
    assert caught.value.problems[0].line == 51
    quoted = b"".join(b'"h,\n%d",r,t\n' % i if i == 20 else b"h%d,r,t\n" % i for i in range(50))
    with pytest.raises(HireError, match="a line break") as caught:
        read_csv(write(quoted, "graph.csv"))
    assert caught.value.problems[0].line == 22


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"a,b,c\n", {}, [("a", "b", "c")]),
        (b"Head,Relation,Tail\na,b,c\n", {}, [("a", "b", "c")]),
        (b"tail,x,head,relation\nT,1,H,R\n", {}, [("H", "R", "T")]),
        (b"s,p,o\na,b,c\n", {"header": False}, [("s", "p", "o"), ("a", "b", "c")]),
        (b"von,art,nach\na,b,c\n", {"header": True}, [("a", "b", "c")]),
        (b"von,art,nach,und\na,b,c,d\n", {"columns": ("nach", "art", "von")}, [("c", "b", "a")]),
        (b"1,a,b,c\n", {"columns": ("2", "3", "4")}, [("a", "b", "c")]),
        (b"id,a,b,c\n1,x,y,z\n", {"columns": ("2", "3", "4"), "header": True}, [("x", "y", "z")]),
        (b'"a, b","say ""x""",c\nd,e,f\n', {}, [("a, b", 'say "x"', "c"), ("d", "e", "f")]),
        (b'"h\nx",r,t\na,b,c\n', {"header": True}, [("a", "b", "c")]),
        (b",extra,h,r,t\n,,a,b,c\n", {}, [("a", "b", "c")]),
    ],
)
def test_columns_and_headers(write: Write, content: bytes, options: dict[str, Any], expected: list[Any]) -> None:
    assert rows(read_csv(write(content, "graph.csv"), **options)) == expected


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"a,b,c,d\n", {}, "expected 3 columns, found 4"),
        (b"a,b,c\n", {"columns": ("a", "b", "x")}, "no column named 'x'"),
        (b"a,b,c\n", {"columns": ("1", "2", "9")}, "column 9 was requested"),
        (b"a,b,c\n", {"columns": ("0", "1", "2")}, "column 0 was requested"),
        (b'a,b,"c\n', {}, "is not valid CSV"),
        (b'a,"b"x,c\n', {}, "is not valid CSV"),
        (b"a,b\tx,c\n", {}, "contains a tab"),
        (b'"a",b\n', {}, "columns"),
        (b'a,b,c\n"",b,c\n', {}, "column 1 is empty"),
    ],
)
def test_wrong_comma_separated_tables(write: Write, content: bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HireError, match=message) as caught:
        read_csv(write(content, "graph.csv"), **options)
    assert caught.value.problems[0].line


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_and_truncated(write: Write, tmp_path: Path, suffix: str) -> None:
    import pyarrow as pa

    path = tmp_path / f"graph.tsv{suffix}"
    with pa.output_stream(path, compression={".gz": "gzip", ".zst": "zstd"}[suffix]) as stream:
        stream.write(b"".join(b"h%d\tr\tt\n" % i for i in range(20_000)))
    assert len(read_triples(path, TableFormat()).triples) == 20_000
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HireError, match="truncated or corrupt") as caught:
        read_triples(path, TableFormat())
    assert caught.value.problems[0].file == str(path)
    path.write_bytes(b"not compressed at all")
    with pytest.raises(HireError, match="truncated or corrupt"):
        read_triples(path, TableFormat())


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="no such file"):
        read_triples(tmp_path / "none.tsv", TableFormat())
    with pytest.raises(HireError, match="is a directory"):
        read_triples(tmp_path, TableFormat())


def test_pairs(write: Write) -> None:
    columns, notes = read_pairs(write(b"entity\tlabel\r\na\tthe first\nb\tthe second\n"), TableFormat())
    assert ["CRLF" in note.message for note in notes] == [True]
    assert [column.to_pylist() for column in columns.arrays()] == [["a", "b"], ["the first", "the second"]]


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n\0"), min_size=1, max_size=8)


@given(st.lists(st.tuples(names, names, names), min_size=1, max_size=20))
def test_what_a_csv_writer_writes_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, triples: list[tuple[str, str, str]]
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(triples)
    path = tmp_path_factory.mktemp("csv") / "graph.csv"
    path.write_bytes(text.getvalue().encode())
    table = read_csv(path, header=False)
    expected = [triple for triple in triples if not (triple is triples[0] and triple[0].startswith("\ufeff"))]
    assert rows(table)[-len(expected) :] == expected
    assert len(lines(table)) == len(triples)


@given(st.binary(max_size=60) | st.text('ab\t\n\r,"\0é\ufeff', max_size=40).map(str.encode), st.sampled_from("\t,"))
def test_whatever_the_bytes_there_are_triples_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "graph.tsv"
    path.write_bytes(content)
    try:
        table = read_triples(path, TableFormat(delimiter))
    except HireError as error:
        assert error.problems[0].file == str(path) and error.problems[0].remedy
        return
    found = rows(table)
    assert found and len(found) == len(lines(table))
    for number, row in zip(lines(table), found, strict=True):
        assert 1 <= number <= content.count(b"\n") + 1
        assert all(name and not set(name) & set("\t\n\r\0") for name in row)
