"""Which library should turn text into numbered triples? Each reads the same file and numbers all names.

    python benchmarks/readers.py [--scale 1.0]

A reader must keep the order of the file, number names by first appearance, and leave room for exact line numbers in
errors. duckdb is measured without keeping any order, which it does not promise: with it, it is slower.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measuring import measure
from synthetic import write_graph

SETUP = "import time; path = {path!r}; start = time.perf_counter()\n"
READERS = {
    "plain Python": """
from array import array
entities, relations, numbers = {}, {}, array("i")
for line in open(path, encoding="utf-8"):
    head, relation, tail = line.rstrip("\\n").split("\\t")
    numbers.append(entities.setdefault(head, len(entities)))
    numbers.append(relations.setdefault(relation, len(relations)))
    numbers.append(entities.setdefault(tail, len(entities)))
result = len(entities)
""",
    "pyarrow.csv": """
import pyarrow as pa, pyarrow.csv as csv
names = ["h", "r", "t"]
table = csv.read_csv(path, csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter="\\t", quote_char=False),
    csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())))
pairs = [chunk for pair in zip(table["h"].chunks, table["t"].chunks) for chunk in pair]
entities = pa.chunked_array(pairs).dictionary_encode()
relations = table["r"].dictionary_encode()
result = len(entities.chunk(0).dictionary)
""",
    "polars": """
import polars as pl
names = ["h", "r", "t"]
table = pl.read_csv(path, separator="\\t", has_header=False, quote_char=None, schema=dict.fromkeys(names, pl.String))
entities = pl.DataFrame({"e": pl.concat([table["h"], table["t"]]).unique(maintain_order=True)}).with_row_index("i")
for column in ("h", "t"):
    table = table.join(entities, left_on=column, right_on="e", maintain_order="left")
result = len(entities)
""",
    "duckdb, any order": """
import duckdb
connection = duckdb.connect()
columns = "{'h': 'VARCHAR', 'r': 'VARCHAR', 't': 'VARCHAR'}"
connection.execute("create table t as select * from "
    f"read_csv(?, delim='\\t', header=false, quote='', columns={columns})", [path])
connection.execute("create table e as select row_number() over () - 1 as i, e from "
    "(select distinct e from (select h as e from t union all select t from t))")
connection.execute("select a.i, b.i from t join e a on a.e = h join e b on b.e = t").fetchnumpy()
result = connection.execute("select count(*) from e").fetchone()[0]
""",
    "ours: array operations, pyarrow's dictionary": """
from pathlib import Path
from hire.data.build import _numbered
from hire.data.sources.delimited import TableFormat, read_triples
entities, relations, triples = _numbered([read_triples(Path(path), TableFormat())])
result = len(entities)
""",
}


def main() -> None:
    """Print seconds and peak memory of each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graph; 1 is Wiki-One's")
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    path = write_graph(options.work / f"graph-{options.scale:g}.tsv", options.scale)
    print(
        f"{path}: {path.stat().st_size / 2**20:,.0f} MiB\n{'reader':46}{'seconds':>9}{'peak MiB':>10}{'entities':>12}"
    )
    for name, code in READERS.items():
        found = measure(SETUP.format(path=str(path)) + code + "seconds = time.perf_counter() - start\n")
        print(f"{name:46}{found['seconds']:9.2f}{found['peak_mib']:10,.0f}{found['result']:12,}", flush=True)


if __name__ == "__main__":
    main()
