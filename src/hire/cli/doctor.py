"""hire doctor: what is wrong, and how to fix it."""

from __future__ import annotations

import click

from hire.cli.output import json_option, print_json, print_table


@click.command()
@click.argument("subject", required=False, metavar="[DATASET|RUN|GRAPH]")
@json_option
def doctor(subject: str | None, as_json: bool) -> None:
    """Tell what is wrong with the installation and, if given, with a dataset, a run or a graph, and how to fix it.

    Checks versions, the tensor library, folders, disk and memory, what the service needs; of a dataset its files, ids
    and tasks; of a run its dataset, weights and calibration. Nothing is changed. The exit code is 2 if it is bad.

    \b
    Examples:
      hire doctor
      hire doctor runs/umls
      hire doctor umls-one --json
    """
    from hire.inference.doctor import diagnose

    found = diagnose(subject)
    problems = [finding for finding in found if finding.status == "problem"]
    if as_json:
        print_json({"problems": len(problems), "findings": [finding._asdict() for finding in found]})
    else:
        rows = [(finding.check, finding.status, finding.message) for finding in found]
        print_table(subject or "Installation", ["check", "", "found"], rows)
        for finding in found:
            if finding.remedy:
                click.echo(f"{finding.check}: {finding.remedy}")
        count = len(problems)
        click.echo("no problems" if not count else f"{count} problem{'s' * (count > 1)}")
    if problems:
        raise SystemExit(2)
