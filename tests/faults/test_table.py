from __future__ import annotations

from tests.faults.table import PEAK, Row, tables


def test_counts_are_added_up_and_peaks_are_not() -> None:
    rows = [
        Row("inputs", "a", {"cases": 1_000, PEAK: 300}),
        Row("kills", "b", {"kills": 5}),
        Row("inputs", "c", {"cases": 500, "read_in_part": 2, PEAK: 400}),
    ]
    assert list(tables(rows)) == [
        "",
        "| inputs | cases | peak MiB | read in part |",
        "| --- | --- | --- | --- |",
        "| a | 1,000 | 300 |  |",
        "| c | 500 | 400 | 2 |",
        "| all | 1,500 | 400 | 2 |",
        "",
        "| kills | kills |",
        "| --- | --- |",
        "| b | 5 |",
    ]
