"""Inputs that are guided by coverage: atheris mutates what a reader reads, and keeps what reaches new code.

    python -m tests.faults.guided READER --run RUN --work FOLDER --runs 5000 --seed 1

Ends with 0 after so many runs, and otherwise at the first input that raises anything but HireError, takes more than 5
seconds or too much memory; atheris says which, and writes it into the folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["hire.data", "hire.util", "hire.training", "hire.evaluation"]):
    from tests.faults.targets import Reader, Targets, passes_bytes

from hire.data.open import open_dataset
from tests.faults.mutate import mutated

SECONDS, MAX_MEBIBYTES = 5, 1_500


def mutator(content: bytes, most: int, seed: int) -> bytes:
    """Half of the mutations are those of libFuzzer, half are ours, which know what confuses a reader of text."""
    random = Random(seed)
    if random.random() < 0.5:
        found: bytes = atheris.Mutate(content, most)
        return found
    return mutated(content, random)[:most]


def fuzz(reader: Reader, work: Path, runs: int, seed: int) -> None:
    """Read so many inputs; ends the process."""
    corpus = work / "corpus"
    corpus.mkdir(parents=True)
    for number, sample in enumerate(reader.samples):
        (corpus / f"sample-{number}").write_bytes(sample)
    options = {
        "runs": runs,
        "seed": seed,
        "timeout": SECONDS,
        "rss_limit_mb": MAX_MEBIBYTES,
        "max_len": max(4_096, *(2 * len(sample) for sample in reader.samples)),
        "artifact_prefix": f"{work}/",
        "print_final_stats": 1,
    }
    arguments = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus)]
    atheris.Setup(arguments, lambda content: passes_bytes(reader, content), custom_mutator=mutator)
    atheris.Fuzz()


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reader")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    targets = Targets(given.work, open_dataset("umls-one"), given.run)
    fuzz((targets.readers() | targets.loaders())[given.reader], given.work / "fuzz", given.runs, given.seed)


if __name__ == "__main__":
    main()
