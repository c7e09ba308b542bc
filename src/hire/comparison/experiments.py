"""The experiments of HiRe's paper: which runs each needs, and its results as a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hire.comparison.charts import Mark, dots_svg, lines_svg
from hire.comparison.complexity import LEVELS, Size, count
from hire.comparison.page import PageTable, Section, Shown
from hire.comparison.plan import Row, row_of
from hire.comparison.published import SYSTEMS, Figures, facts, figures, hire_figures, published_name
from hire.comparison.table import CUT, METRIC_TITLES, METRICS, Cell, Comparison
from hire.comparison.write import legend, marked_rows, number, spread
from hire.data.dataset import SPLITS, FewShotDataset
from hire.data.statistics import shared_context
from hire.systems.base import Recipe
from hire.systems.registry import system_names

OURS, PAPER = "ours", "paper"
PUBLISHED = {"MetaR-P": {"training.embedding_norm": 1.0}}  # what else to change in that recipe: MetaR-I's has no norm
ABLATIONS: dict[str, dict[str, Any]] = {
    "HiRe": {},
    "w/o MTransD (MTransE)": {"model.decoder": "mtranse"},
    "w/o MTransD (MTransH)": {"model.decoder": "mtransh"},
    "w/o MAML": {"model.inner_steps": 0},
    "w/o MRL (AVG)": {"model.learner": "mean"},
    "w/o MRL (LSTM)": {"model.learner": "lstm"},
    "w/o Context": {"model.context_weight": 0.0},
}
FALSE_CONTEXTS = (1, 2, 4, 6)
WEIGHTS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5)  # lambda; the paper says between 0 and 0.5


@dataclass(frozen=True)
class Experiment:
    """An experiment that trains."""

    name: str
    title: str
    about: str
    shots: tuple[int, ...]
    rows: Callable[[Recipe], list[Row]]
    published: Callable[[str | None], Mapping[str, Figures]]  # by the names of the rows, for a dataset
    axis: str | None = None  # of a figure: what the names of the rows are values of


def _systems(recipe: Recipe) -> list[Row]:
    found, known = [], system_names()
    for name, (system, changes) in SYSTEMS.items():
        if system in known:
            row = row_of(system, recipe)
            more = PUBLISHED.get(name, {}) if recipe == "published" else {}
            found.append(Row(name, row.settings.changed({**changes, **more}), row.recipe))
    return found


def _variants(changes: Mapping[str, Mapping[str, Any]]) -> Callable[[Recipe], list[Row]]:
    """Rows that are HiRe with something changed."""

    def rows(recipe: Recipe) -> list[Row]:
        base = row_of("hire", recipe)
        return [Row(name, base.settings.changed(change), base.recipe) for name, change in changes.items()]

    return rows


def _sensitivity(dataset: str | None, best: str, without: str | None = None) -> dict[str, Figures]:
    """What the tables say about points of a figure: the best setting, and the context level left out."""
    whole, plain = hire_figures(dataset)
    return {best: whole} | ({} if without is None else {without: plain})


TRAINED = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "comparison",
            "Comparison of systems (Table 2)",
            "All systems of the paper's main table, ranked by one evaluator.",
            (1, 5),
            _systems,
            lambda dataset: figures("comparison", dataset),
        ),
        Experiment(
            "ablation",
            "Ablation of HiRe's parts",
            "HiRe with one part replaced or left out.",
            (3, 5),
            _variants(ABLATIONS),
            lambda dataset: figures("ablation", dataset),
        ),
        Experiment(
            "false-contexts",
            "Number of false contexts N",
            "The paper shows a figure and says that N = 1 is best; its tables have the figures of N = 1.",
            (1, 3, 5),
            _variants({f"N = {n}": {"model.false_contexts": n} for n in FALSE_CONTEXTS}),
            lambda dataset: _sensitivity(dataset, f"N = {facts()['best']['false-contexts']}"),
            "N, false contexts of a triplet",
        ),
        Experiment(
            "lambda",
            "Weight of the context loss λ",
            "The paper shows a figure and says that λ = 0.05 is best; its tables have the figures of 0 and 0.05.",
            (1, 3, 5),
            _variants({f"λ = {weight:g}": {"model.context_weight": weight} for weight in WEIGHTS}),
            lambda dataset: _sensitivity(dataset, f"λ = {facts()['best']['lambda']:g}", "λ = 0"),
            "λ, the weight of the context loss",
        ),
    )
}
COUNTED = ("context-statistics", "complexity")
NAMES = (*TRAINED, *COUNTED)


def trained_section(experiment: Experiment, comparison: Comparison, dataset: FewShotDataset) -> Section:
    """The results of an experiment: each metric beside the published one, charts, and what to know about them."""
    published = experiment.published(published_name(dataset))
    tables = [_beside_table(comparison, published, shots) for shots in comparison.shots]
    if experiment.name == "ablation":
        tables.append(_losses_table(comparison, published))
    draw = _dots if experiment.axis is None else _curves
    charts = [draw(experiment, comparison, published)]
    notes = ["A difference in bold: the published figure is outside our 95% interval over relations and queries."]
    if not any(published.values()):
        notes = [f"The paper has no figures of {dataset.name}."]
    notes += legend(comparison)
    missing = [name for name in published if name not in {line.row.name for line in comparison.lines}]
    if missing:
        notes.append(f"Not here: {', '.join(missing)}.")
    cut = [f"{line.row.key}: {note}." for line in comparison.lines for note in line.notes if CUT in note]
    data = _plain(comparison, published)
    return Section(experiment.name, experiment.title, experiment.about, tables, charts, notes, data, cut)


def _beside_table(comparison: Comparison, published: Mapping[str, Figures], shots: int) -> PageTable:
    groups = [("", 2), *((title, 3) for title in METRIC_TITLES.values())]
    rows = []
    for line, mark in marked_rows(comparison):
        row = [Shown(f"{line.row.name} {mark}".strip()), Shown(line.row.recipe)]
        for metric in METRICS:
            row += _beside(line.cells.get((shots, metric)), published.get(line.row.name, {}).get(shots, {}).get(metric))
        rows.append(row)
    head = ["", "recipe", *[OURS, PAPER, "difference"] * len(METRICS)]
    return PageTable(f"{shots}-shot", groups, head, rows)


def _beside(cell: Cell | None, published: float | None) -> list[Shown]:
    """Ours, theirs, and the difference."""
    ours = Shown("–") if cell is None else Shown(spread(cell) + "*" * cell.worse, cell.best)
    theirs = Shown("–" if published is None else number(published))
    if cell is None or published is None:
        return [ours, theirs, Shown("")]
    outside = not cell.interval[0] <= published <= cell.interval[1]
    return [ours, theirs, Shown(number(cell.mean - published, signed=True), outside)]


def _losses_table(comparison: Comparison, published: Mapping[str, Figures]) -> PageTable:
    """How much each variant loses in MRR against the first row."""
    whole = comparison.lines[0].row
    rows = []
    for line in comparison.lines[1:]:
        row = [Shown(line.row.name)]
        for shots in comparison.shots:
            row += _loss(comparison, whole.key, line.row.key, shots)
            theirs = [published.get(name, {}).get(shots, {}).get("mrr") for name in (line.row.name, whole.name)]
            known = [value for value in theirs if value is not None]
            row.append(Shown(number(known[0] - known[1], signed=True) if len(known) == 2 else "–"))
        rows.append(row)
    groups = [("", 1), *((f"{shots}-shot", 3) for shots in comparison.shots)]
    head = ["", *[OURS, "95%", PAPER] * len(comparison.shots)]
    return PageTable(f"MRR against {whole.name}; bold where 95% leave out zero", groups, head, rows)


def _loss(comparison: Comparison, whole: str, part: str, shots: int) -> list[Shown]:
    for each in comparison.differences:
        if each.shots == shots and each.metric == "mrr" and (each.first, each.second) == (whole, part):
            low, high = (-end for end in reversed(each.interval))
            apart = low > 0 or high < 0
            between = f"{number(low, signed=True)} to {number(high, signed=True)}"
            return [Shown(number(-each.difference, signed=True), apart), Shown(between)]
    return [Shown("–"), Shown("")]


def _dots(experiment: Experiment, comparison: Comparison, published: Mapping[str, Figures]) -> str:
    panels: dict[str, dict[str, dict[str, Mark]]] = {}
    for shots in comparison.shots:
        panel = panels.setdefault(f"{shots}-shot", {})
        for line in comparison.lines:
            marks: dict[str, Mark] = {}
            cell, theirs = line.cells.get((shots, "mrr")), published.get(line.row.name, {}).get(shots)
            if cell is not None:
                marks[OURS] = Mark(cell.mean, *cell.interval)
            if theirs is not None:
                marks[PAPER] = Mark(theirs["mrr"])
            if marks:
                panel[line.row.name] = marks
    return dots_svg(f"{experiment.title}: MRR", panels, [OURS, PAPER])


def _curves(experiment: Experiment, comparison: Comparison, published: Mapping[str, Figures]) -> str:
    curves: dict[str, list[Mark | None]] = {}
    for shots in comparison.shots:
        cells = [line.cells.get((shots, "mrr")) for line in comparison.lines]
        curves[f"{shots}-shot"] = [None if cell is None else Mark(cell.mean, *cell.interval) for cell in cells]
    for shots in comparison.shots:
        theirs = [published.get(line.row.name, {}).get(shots) for line in comparison.lines]
        if any(theirs):
            curves[f"{shots}-shot, {PAPER}"] = [None if known is None else Mark(known["mrr"]) for known in theirs]
    xs = [line.row.name.rpartition("= ")[2] for line in comparison.lines]
    return lines_svg(f"{experiment.title}: MRR", xs, curves, experiment.axis or "")


def _plain(comparison: Comparison, published: Mapping[str, Figures]) -> list[dict[str, Any]]:
    """Every cell as plain data."""
    found = []
    for line in comparison.lines:
        for (shots, metric), cell in line.cells.items():
            theirs = published.get(line.row.name, {}).get(shots, {}).get(metric)
            found.append(
                {
                    "row": line.row.name,
                    "recipe": line.row.recipe,
                    "shots": shots,
                    "metric": metric,
                    "mean": cell.mean,
                    "deviation": cell.deviation,
                    "interval": list(cell.interval),
                    "published": theirs,
                    "difference": None if theirs is None else cell.mean - theirs,
                    "cut": sum(outcome.cut for outcome in line.evaluated(shots)),
                    "runs": len(line.evaluated(shots)),
                }
            )
    return found


def context_statistics(dataset: FewShotDataset) -> Section:
    """The statistics of the dataset and of the contexts that head and tail share, as in the paper's appendix B."""
    name = published_name(dataset)
    graph, train = dataset.graph, [task.pairs for task in dataset.split("train")]
    background = graph.triples[:, [0, 2]]
    groups = {
        "background and train tasks": np.concatenate([background, *train]),
        "train tasks alone": np.concatenate([background[:0], *train]),
    }
    size = {
        "relations": len(graph.background_relations) + len(dataset.tasks),
        "entities": len(graph.entities),
        "triplets": len(graph.triples),
        "tasks": len(dataset.tasks),
    }
    theirs = facts()["datasets"].get(name, {})
    tables = [_numbers_table("The dataset", size, theirs)]
    data: dict[str, Any] = {"dataset": size, "splits": [dataset.split_sizes[split] for split in SPLITS]}
    of_paper = facts()["context-statistics"].get(name, {})
    for title, pairs in groups.items():
        found = data[title] = vars(shared_context(graph, pairs))
        same = of_paper.get("triplets") == len(pairs)
        tables.append(_numbers_table(f"Shared context: {title}", found, of_paper if same else {}))
    notes = [
        "Sharing: triplets whose head and tail have a neighbor, or a tuple of relation and neighbor, in common.",
        "The paper counted background and train tasks on NELL-One, and the train tasks alone on Wiki-One.",
    ]
    about = "What head and tail have in common, within 50 neighbors of each in the background graph."
    return Section("context-statistics", "Context statistics (appendix B)", about, tables, [], notes, data)


def _numbers_table(title: str, ours: Mapping[str, int], theirs: Mapping[str, Any]) -> PageTable:
    rows = []
    for name, value in ours.items():
        known = theirs.get(name)
        apart = (
            [Shown("–"), Shown("")]
            if known is None
            else [Shown(f"{known:,}"), Shown(f"{value - known:+,}", value != known)]
        )
        rows.append([Shown(name.replace("_", " ")), Shown(f"{value:,}"), *apart])
    return PageTable(title, [("", 4)], ["", OURS, PAPER, "difference"], rows)


def complexity() -> Section:
    """Parameters and operations: formula beside measurement."""
    counted = count()
    tables = []
    for level in LEVELS:
        rows = []
        for each in (each for each in counted if each.level == level.name):
            ratio = each.operations / each.formula_operations
            figures_ = (each.parameters, each.formula_parameters, each.operations, each.formula_operations)
            rows.append([Shown(_size(each.size)), *(Shown(f"{value:,}") for value in figures_), Shown(f"{ratio:.1f}")])
        groups = [("", 1), ("parameters", 2), ("multiplications of a task", 3)]
        head = ["", "counted", f"O({level.parameters})", "counted", f"O({level.operations})", "ratio"]
        tables.append(PageTable(f"{level.name.capitalize()} level", groups, head, rows))
    notes = [
        "n: references of a task; k: tuples of a context; d: dimension. A formula holds if its ratio hardly changes.",
        "Weights depend on d alone, whatever n and k are; the paper's formulas of parameters count what they compute.",
        "Multiplications of the forward pass for one more task, so that what is computed once for a batch is left out.",
    ]
    data = [{**vars(each), "size": vars(each.size)} for each in counted]
    about = "The paper's formulas beside what is counted in the network as it is."
    return Section("complexity", "Complexity (appendix)", about, tables, [], notes, data)


def _size(size: Size) -> str:
    return f"n = {size.references}, k = {size.tuples}, d = {size.dimension}"


def expanded(names: Sequence[str]) -> list[str]:
    """Experiments by name; `all` stands for each."""
    return list(NAMES) if "all" in names else list(dict.fromkeys(names))
