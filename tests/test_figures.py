"""Figures that documents show are those of the ranks and metrics kept in `results`, or of a paper."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hire.comparison.published import facts
from hire.comparison.table import METRICS
from hire.comparison.write import number
from hire.evaluation.ranking import Ranks, metrics

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
TABLES = sorted(RESULTS.rglob("comparison*.json"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(RESULTS.glob("*.md"))]
METRICS_OF_ONE = re.compile(r"(?:\.\d{3} / ){3}\.\d{3}")
SPREAD = re.compile(r"\.\d{3} ± \.\d{3}")

OF_AUTHORS = {  # what other papers and their code report, beside HiRe's
    ".308 / .475 / .406 / .216",  # MetaR, in-train, one reference
    ".313 / .499 / .420 / .214",  # five
    ".225 / .350 / .286 / .159",  # MetaR, pre-train, one reference
    ".238 / .375 / .321 / .163",  # five
    ".379 / .530 / .463 / .302",  # CIAN, five, twice
    ".376 / .533 / .466 / .291",
}


def shown(values: Mapping[str, float]) -> str:
    """MRR / Hits@10 / Hits@5 / Hits@1."""
    return " / ".join(number(values[metric]) for metric in METRICS)


@cache
def ranked(path: Path) -> dict[str, float]:
    """The metrics of a file of ranks; none where there are no ranks in it."""
    relations = json.loads(path.read_text("utf-8")).get("relations") if path.exists() else None
    parts = [part for part in (relations or {}).values() if isinstance(part, dict) and "optimistic" in part]
    if not parts:
        return {}
    both = (np.concatenate([part[name] for part in parts]) for name in ("optimistic", "pessimistic"))
    found = metrics(Ranks(*both).realistic)
    return {metric: float(found[metric]) for metric in METRICS}


def rows_of(table: Path) -> Iterator[tuple[str, dict[str, Any], list[Path]]]:
    """The cells of a table, and the files of ranks that each is the mean of."""
    content = json.loads(table.read_text("utf-8"))
    among_all = "-all" if content["candidates"] == "all" else ""
    for row in content["rows"]:
        for shots, cells in row["metrics"].items():
            runs = [run["folder"] for run in row["runs"] if int(shots.removesuffix("-shot")) in run["shots"]]
            files = [f"{content['split']}-{shots}{among_all}.json"]
            if content["draws"] is not None:
                files = [f"{content['split']}-{shots}{among_all}-draw-{draw}.json" for draw in range(content["draws"])]
            folder = next(place for place in table.parents if (place / "runs").exists() or place == RESULTS)
            yield f"{row['name']}, {shots}", cells, [folder / "runs" / run / file for run in runs for file in files]


def with_spread(mean: float, deviation: float) -> str:
    """A mean and its standard deviation."""
    return f"{number(mean)} ± {number(deviation)}"


def single_runs() -> Iterator[tuple[str, dict[str, float]]]:
    """What runs are called but for their seeds, and their metrics."""
    for path in RESULTS.rglob("*.json"):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict) and "realistic" in content:
            yield re.sub(r"-\d+(?=/|-test|-dev)", "", str(path)), content["realistic"]
    for path in RESULTS.rglob("levels/*.jsonl"):
        for line in map(json.loads, path.read_text("utf-8").splitlines()):
            for shots in {key.partition("-")[0] for key in line if key[0].isdigit()}:
                found = {metric: line.get(f"{shots}-{metric}", 0.0) for metric in METRICS}
                yield f"{path}, {line['variant']}, {shots}", found


@cache
def measured() -> tuple[set[str], set[str]]:
    """All metrics side by side as documents show them, and all means with their spread."""
    whole = {shown(found) for found in map(ranked, RESULTS.glob("*/comparison/runs/*/*-shot*.json")) if found}
    spreads = set()
    for table in TABLES:
        for _, cells, _ in rows_of(table):
            whole.add(shown({metric: cells[metric]["mean"] for metric in METRICS}))
            each = (cells[metric] for metric in METRICS)
            spreads |= {with_spread(of["mean"], of["deviation"]) for of in each if of["deviation"] is not None}
    for path in RESULTS.rglob("*-draws.json"):
        of_draws = json.loads(path.read_text("utf-8"))
        spreads |= {with_spread(of_draws["mean"][metric], of_draws["deviation"][metric]) for metric in METRICS}
    seeds: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, run in single_runs():
        seeds[name].append(run)
    for runs in seeds.values():
        values = {metric: [run[metric] for run in runs] for metric in METRICS}
        whole |= {shown(run) for run in runs} | {shown({metric: float(np.mean(of)) for metric, of in values.items()})}
        if len(runs) > 1:
            spreads |= {with_spread(float(np.mean(of)), float(np.std(of, ddof=1))) for of in values.values()}
    return whole, spreads


def published() -> set[str]:
    """All metrics side by side that HiRe's paper reports."""
    tables = [facts()[name] for name in ("comparison", "ablation")]
    rows = [row for table in tables for dataset in table.values() for row in dataset.values()]
    return {shown(dict(zip(METRICS, values, strict=True))) for row in rows for values in row.values()}


@pytest.mark.parametrize("table", TABLES, ids=lambda path: str(path.parent.relative_to(RESULTS)))
def test_tables_are_means_of_the_ranks_that_are_kept(table: Path) -> None:
    for name, cells, files in rows_of(table):
        runs = [ranked(path) for path in files]
        if all(runs):
            for metric in METRICS:
                mean = float(np.mean([run[metric] for run in runs]))
                assert cells[metric]["mean"] == pytest.approx(mean, abs=1e-9), f"{name}: {metric}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_what_was_measured_or_published(document: Path) -> None:
    text = " ".join(document.read_text("utf-8").replace("*", "").split())
    whole, spreads = measured()
    unknown = set(METRICS_OF_ONE.findall(text)) - whole - published() - OF_AUTHORS
    unknown |= set(SPREAD.findall(text)) - spreads
    assert not unknown
