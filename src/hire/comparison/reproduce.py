"""Carries out experiments of the paper one after the other; the page is written anew after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hire.comparison.experiments import COUNTED, TRAINED, complexity, context_statistics, trained_section
from hire.comparison.page import Section, write_page
from hire.comparison.plan import Job, jobs_of
from hire.comparison.run import Bench, Outcome, Report
from hire.comparison.table import compare
from hire.comparison.write import NAME, write_comparison
from hire.systems.base import Recipe
from hire.training.run import fingerprint
from hire.util.tensors import write_json

TABLE_2 = "table-2"  # the page of the experiment `comparison`, beside the files that `hire compare` calls so


@dataclass(frozen=True)
class Reproduction:
    """Which experiments to carry out, and how."""

    bench: Bench
    names: Sequence[str]  # of experiments
    recipe: Recipe = "published"
    seeds: int = 3
    report_only: bool = False  # show what is there, and train and rank nothing

    @property
    def page(self) -> Path:
        """The page; beside it lies the same as JSON."""
        name = self.names[0] if len(self.names) == 1 else "reproduction"
        return self._path(TABLE_2 if name == NAME else name, ".html")

    def _path(self, name: str, suffix: str = "") -> Path:
        """What is written of an experiment; the two recipes in one folder leave each other's alone."""
        of_recipe = "" if name in COUNTED or self.recipe == "published" else f"-{self.recipe}"
        return self.bench.folder / f"{name}{of_recipe}{suffix}"

    def jobs(self, name: str) -> list[Job]:
        """The runs that an experiment needs; experiments share those with the same settings."""
        if name in COUNTED:
            return []
        experiment = TRAINED[name]
        return jobs_of(experiment.rows(self.recipe), experiment.shots, self.seeds, fingerprint(self.bench.dataset))

    def all_jobs(self) -> list[Job]:
        """The runs that all experiments need, each once."""
        return list({(job.name, job.shots): job for name in self.names for job in self.jobs(name)}.values())

    def carry_out(self, report: Report = lambda _: None) -> tuple[list[Section], dict[str, Any], list[Outcome]]:
        """The sections of the page, the same as plain data, and how the runs went."""
        about = self.bench.about() | {"experiments": list(self.names), "recipe": self.recipe, "seeds": self.seeds}
        sections: list[Section] = []
        outcomes: list[Outcome] = []
        content: dict[str, Any] = {}
        self.bench.folder.mkdir(parents=True, exist_ok=True)
        for done, name in enumerate(self.names, 1):
            sections.append(self._section(name, about, outcomes, report))
            title = f"HiRe's paper on {self.bench.dataset.name}, reproduced"
            write_page(self.page, title, sections, about, self.names[done:])
            content = about | {"sections": {section.name: section.data for section in sections}}
            write_json(self.page.with_suffix(".json"), content)
        return sections, content, outcomes

    def _section(self, name: str, about: dict[str, Any], outcomes: list[Outcome], report: Report) -> Section:
        dataset = self.bench.dataset
        if name in COUNTED:
            return complexity() if name == "complexity" else context_statistics(dataset)
        experiment = TRAINED[name]
        jobs = self.jobs(name)
        if not self.report_only:
            report(f"{experiment.title}:")
        found = self.bench.outcomes(jobs) if self.report_only else self.bench.carry_out(jobs, report)
        outcomes += found
        comparison = compare(experiment.rows(self.recipe), found, experiment.shots, about)
        folder = self._path(name)
        folder.mkdir(exist_ok=True)
        write_comparison(folder, comparison)
        return trained_section(experiment, comparison, dataset)
